// Signing in and out. The token goes to the gateway once and is kept nowhere here.
import { signal } from "@preact/signals";
import { ApiError, post, send } from "../api/client";
import { BASE, go } from "../router";
import { sessionChanged } from "./link";

const PATH = "/console/session";
const ARRIVALS = "/console/arrivals";
const CALLBACK = `${BASE}callback`;
// Where the browser left for the provider, to come back to. It is the only thing that this tab keeps.
const LEFT = "dovetail-left";

export interface Offer {
  code: string;
  username: string;
  // Of whom the browser has a session; empty without one.
  signedInAs: string;
}

interface Arrived extends Omit<Offer, "code"> {
  // Whether the session that is there is the same user's.
  same: boolean;
}

// Why the link that opened this page, or the provider's answer, did not sign in.
export const arrivalProblem = signal("");
// Whom the link that opened this page would sign in. Anybody can send such a link, so the user decides.
export const offer = signal<Offer | null>(null);

// Signs in with what the page's address carries, if it does.
export async function arrive(): Promise<void> {
  try {
    if (location.pathname === CALLBACK) await finishLogin();
    else await readLink();
  } catch (error) {
    arrivalProblem.value = error instanceof ApiError ? error.message : String(error);
  }
}

// The file of `dovetail console` leads here with a one-time code in the fragment, which browsers send to no server.
async function readLink(): Promise<void> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  const arrived = await post<Arrived>(ARRIVALS, { code });
  if (!arrived.same) offer.value = { ...arrived, code };
}

export async function acceptOffer(): Promise<void> {
  if (!offer.value) return;
  await redeem({ code: offer.value.code, instead: true });
  offer.value = null;
}

export function declineOffer(): void {
  offer.value = null;
  arrivalProblem.value = "";
}

// A code that was typed: from the user's own terminal, so nothing is asked.
export async function enterCode(code: string): Promise<void> {
  await post<Arrived>(ARRIVALS, { code });
  await redeem({ code });
}

async function redeem(body: object): Promise<void> {
  await post(PATH, body);
  arrivalProblem.value = "";
  await sessionChanged();
}

// The OpenID provider sends the browser here. The gateway exchanges the code, with what it alone knows of this sign-in.
async function finishLogin(): Promise<void> {
  const sent = new URLSearchParams(location.search);
  go(BASE, { replace: true });
  const error = [sent.get("error"), sent.get("error_description")].filter(Boolean).join(", ");
  await post(CALLBACK, { state: sent.get("state") ?? "", code: sent.get("code") ?? "", error });
  go(sessionStorage.getItem(LEFT) ?? BASE, { replace: true });
  sessionStorage.removeItem(LEFT);
}

// Leaves this page for the provider's.
export async function signInAtProvider(): Promise<void> {
  const { url } = await post<{ url: string }>(`${BASE}login`, {});
  sessionStorage.setItem(LEFT, location.pathname + location.search);
  location.assign(url);
}

export async function signIn(token: string): Promise<void> {
  await redeem({ token });
}

export async function signOut(): Promise<void> {
  await send("DELETE", PATH);
  await sessionChanged();
}
