// Signing in and out. The token goes to the gateway once and is kept nowhere here.
import { ApiError, post, send } from "../api/client";
import { signal } from "@preact/signals";
import { sessionChanged } from "./link";

const PATH = "/console/session";
// Why the link that opened this page did not sign in.
export const ticketProblem = signal("");

// A link of `dovetail console` carries a one-time ticket in its fragment, which browsers send to no server.
export async function redeemTicket(): Promise<void> {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (!ticket) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await post(PATH, { ticket });
  } catch (error) {
    ticketProblem.value = error instanceof ApiError ? error.message : String(error);
  }
}

export async function signIn(token: string): Promise<void> {
  await post(PATH, { token });
  ticketProblem.value = "";
  await sessionChanged();
}

export async function signOut(): Promise<void> {
  await send("DELETE", PATH);
  await sessionChanged();
}
