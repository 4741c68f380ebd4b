// Keeps the store current: one stream for all tabs of a browser, and polling where no stream holds.
//
// The tab with the Web Lock leads: it reads the stream and passes each event on to the other tabs. Browsers open six
// connections to one server, so a stream for each tab would block the seventh tab.
import { batch } from "@preact/signals";
import { ApiError, get, send, UnreachableError } from "../api/client";
import type { Delta, Me, Snapshot } from "../api/types";
import * as store from "./store";

const PING_MS = 2000;
// After this silence the gateway counts as away, so that the banner comes within 5 s.
const PING_LIMIT_MS = 2000;
const REOPEN_MS = 1000;
const POLL_MS = 10_000;
// A hidden tab's timers are slow, so that it does not lead for long.
const HIDDEN_MS = 60_000;

type Message =
  | { kind: "delta"; delta: Delta }
  | { kind: "resync" }
  | { kind: "link"; link: store.Link; currentAt: number }
  | { kind: "session" };

const channel = "BroadcastChannel" in window ? new BroadcastChannel("dovetail-console") : null;
let etag = "";
let loading: Promise<void> | null = null;
let waiting: Delta[] = [];
let leading = false;
let source: EventSource | null = null;
let failures = 0;
let lastPoll = 0;
let reopenAt = 0;

const tell = (message: Message): void => channel?.postMessage(message);

export async function start(): Promise<void> {
  channel?.addEventListener("message", (event: MessageEvent<Message>) => void hear(event.data));
  document.addEventListener("visibilitychange", onVisibility);
  await connect();
  void lead();
}

// Reads who the user is and all data; sets the link by what comes back.
export async function connect(): Promise<void> {
  try {
    if (!(await signedIn())) throw new ApiError(401, "", "");
    // At once: pages that read more begin as soon as the user is known, while the data are on their way.
    await Promise.all([get<Me>("/api/v3/me").then((who) => (store.me.value = who)), load()]);
  } catch (error) {
    failed(error);
  }
}

// Called after signing in or out, in this tab.
export async function sessionChanged(): Promise<void> {
  tell({ kind: "session" });
  await restart();
}

async function restart(): Promise<void> {
  closeStream();
  store.forget();
  etag = "";
  store.link.value = "starting";
  await connect();
}

function load(): Promise<void> {
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

function apply(delta: Delta): void {
  if (loading) waiting.push(delta);
  else batch(() => store.apply(delta));
}

async function hear(message: Message): Promise<void> {
  switch (message.kind) {
    case "delta":
      return apply(message.delta);
    case "resync":
      return load().catch(failed);
    case "session":
      return restart();
    case "link":
      if (leading) return;
      // A tab that could not load its data yet does so now.
      if (store.sequence() < 0 && message.link !== "away") return connect();
      store.link.value = message.link;
      store.currentAt.value = message.currentAt;
  }
}

function current(link: store.Link): void {
  store.link.value = link;
  store.currentAt.value = Date.now();
}

function failed(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) {
    store.forget();
    etag = "";
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

let release: (() => void) | null = null;

async function lead(): Promise<void> {
  if (!("locks" in navigator)) {
    leading = true;
    tick();
    return;
  }
  await navigator.locks.request("dovetail-console-stream", async () => {
    leading = true;
    tick();
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    release = null;
    leading = false;
    closeStream();
  });
}

let hiddenTimer = 0;

function onVisibility(): void {
  window.clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = window.setTimeout(() => release?.(), HIDDEN_MS);
  } else if (!leading) {
    void load().catch(failed);
    void lead();
  }
}

// The leader's pulse: whether the gateway answers, and whether the stream is open.
async function tick(): Promise<void> {
  while (leading) {
    const began = Date.now();
    const before = store.link.value;
    await pulse();
    if (store.link.value !== before || store.link.value === "live" || store.link.value === "polling") {
      tell({ kind: "link", link: store.link.value, currentAt: store.currentAt.value });
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, PING_MS - (Date.now() - began))));
  }
}

async function signedIn(): Promise<boolean> {
  const response = await send("GET", "/console/session", { signal: AbortSignal.timeout(PING_LIMIT_MS) });
  const state = (await response.json()) as { signedIn: boolean; provider: string };
  store.provider.value = state.provider;
  return state.signedIn;
}

async function pulse(): Promise<void> {
  try {
    if (!(await signedIn())) return failed(new ApiError(401, "", ""));
  } catch {
    closeStream();
    store.link.value = "away";
    return;
  }
  if (store.link.value === "denied" || store.link.value === "signedOut" || store.sequence() < 0) return connect();
  // The stream goes on where it ended, or asks for a whole list: one after each slow answer would load a busy gateway.
  follow();
  if (source?.readyState === EventSource.OPEN) return current("live");
  if (failures >= 2) await poll();
}

async function poll(): Promise<void> {
  store.link.value = "polling";
  if (Date.now() - lastPoll < POLL_MS) return;
  lastPoll = Date.now();
  const before = etag;
  await load().catch(failed);
  if (etag !== before) tell({ kind: "resync" });
}

function follow(): void {
  if (source || Date.now() < reopenAt) return;
  const stream = new EventSource(`/api/v3/stream?since=${store.position()}`);
  source = stream;
  stream.addEventListener("open", () => {
    failures = 0;
    current("live");
  });
  stream.addEventListener("delta", (event: MessageEvent<string>) => {
    const delta = JSON.parse(event.data) as Delta;
    apply(delta);
    store.currentAt.value = Date.now();
    tell({ kind: "delta", delta });
  });
  stream.addEventListener("resync", () => {
    tell({ kind: "resync" });
    void load().catch(failed);
  });
  stream.addEventListener("bye", () => reopen(stream));
  stream.addEventListener("error", () => {
    failures++;
    reopen(stream);
  });
}

function reopen(stream: EventSource): void {
  stream.close();
  if (source === stream) source = null;
  reopenAt = Date.now() + (failures >= 2 ? POLL_MS : REOPEN_MS);
}

function closeStream(): void {
  source?.close();
  source = null;
  failures = 0;
  reopenAt = 0;
}
