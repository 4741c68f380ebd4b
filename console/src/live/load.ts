// Reads whole answers of the gateway into the store, and says by them how this tab is linked.
import { batch } from "@preact/signals";
import { ApiError, get, send, UnreachableError } from "../api/client";
import type { Delta, Me, Snapshot } from "../api/types";
import * as store from "./store";

// After this silence the gateway counts as away, so that the banner comes within 5 s.
const PING_LIMIT_MS = 2000;

let etag = "";
let loading: Promise<void> | null = null;
let waiting: Delta[] = [];

// The tag of the whole list that was read last.
export const loaded = (): string => etag;

// Whether the head of this page has asked for the data: the gateway knows a session of this browser.
let asked = document.querySelector('link[rel="preload"][href="/api/v3/snapshot"]') !== null;

// Reads who the user is and all data; sets the link by what comes back.
export async function connect(): Promise<void> {
  try {
    const session = signedIn().then((is) => {
      if (!is) throw new ApiError(401, "", "");
    });
    if (!asked) await session;
    asked = false;
    // At once: pages that read more begin as soon as the user is known, while the data are on their way.
    await Promise.all([session, get<Me>("/api/v3/me").then((who) => (store.me.value = who)), load()]);
  } catch (error) {
    failed(error);
  }
}

export function forget(): void {
  store.forget();
  etag = "";
}

export function load(): Promise<void> {
  loading ??= reload().finally(() => {
    loading = null;
  });
  return loading;
}

async function reload(): Promise<void> {
  waiting = [];
  const headers: Record<string, string> = etag ? { "If-None-Match": etag } : {};
  const response = await send("GET", "/api/v3/snapshot", { headers });
  const snapshot = response.status === 304 ? null : ((await response.json()) as Snapshot);
  batch(() => {
    if (snapshot) {
      etag = response.headers.get("ETag") ?? "";
      store.replaceAll(snapshot);
    }
    // Events that came while the snapshot was on its way.
    waiting.forEach(store.apply);
    waiting = [];
    current(store.link.value === "polling" ? "polling" : "live");
  });
}

export function apply(delta: Delta): void {
  if (loading) waiting.push(delta);
  else batch(() => store.apply(delta));
}

export function current(link: store.Link): void {
  store.link.value = link;
  store.currentAt.value = Date.now();
}

export function failed(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) {
    forget();
    store.link.value = "signedOut";
  } else if (error instanceof ApiError && error.status === 403) {
    store.deniedWhy.value = error.message;
    store.link.value = "denied";
  } else if (error instanceof UnreachableError || error instanceof ApiError || error instanceof DOMException) {
    // A DOMException is a request that took too long.
    store.link.value = "away";
  } else {
    throw error;
  }
}

export async function signedIn(): Promise<boolean> {
  const response = await send("GET", "/console/session", { signal: AbortSignal.timeout(PING_LIMIT_MS) });
  const state = (await response.json()) as { signedIn: boolean; provider: string };
  store.provider.value = state.provider;
  return state.signedIn;
}
