// Signing in and out. The token goes to the gateway once and is kept nowhere here.
import { signal } from "@preact/signals";
import { ApiError, post, send } from "../api/client";
import { BASE, go } from "../router";
import { sessionChanged } from "./link";

const PATH = "/console/session";
const CALLBACK = `${BASE}callback`;
// Why the link that opened this page, or the provider's answer, did not sign in.
export const arrivalProblem = signal("");

// Signs in with what the page's address carries, if it does.
export async function arrive(): Promise<void> {
  try {
    if (location.pathname === CALLBACK) await finishLogin();
    else await redeemTicket();
  } catch (error) {
    arrivalProblem.value = error instanceof ApiError ? error.message : String(error);
  }
}

// A link of `dovetail console` carries a one-time ticket in its fragment, which browsers send to no server.
async function redeemTicket(): Promise<void> {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (!ticket) return;
  history.replaceState(null, "", location.pathname + location.search);
  await post(PATH, { ticket });
}

// The OpenID provider sends the browser here. The gateway exchanges the code, with what it alone knows of this sign-in.
async function finishLogin(): Promise<void> {
  const sent = new URLSearchParams(location.search);
  go(BASE, { replace: true });
  const error = [sent.get("error"), sent.get("error_description")].filter(Boolean).join(", ");
  const state = await post<{ page: string }>(CALLBACK, { state: sent.get("state") ?? "", code: sent.get("code") ?? "", error });
  go(state.page, { replace: true });
}

// Leaves this page for the provider's.
export async function signInAtProvider(): Promise<void> {
  const page = location.pathname + location.search;
  const { url } = await post<{ url: string }>(`${BASE}login`, { page });
  location.assign(url);
}

export async function signIn(token: string): Promise<void> {
  await post(PATH, { token });
  arrivalProblem.value = "";
  await sessionChanged();
}

export async function signOut(): Promise<void> {
  await send("DELETE", PATH);
  await sessionChanged();
}
