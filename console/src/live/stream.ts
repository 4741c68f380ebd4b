// The stream of changes, read by one tab for all; polling where no stream holds.
import type { Delta } from "../api/types";
import { tell } from "./channel";
import { apply, current, failed, load, loaded } from "./load";
import * as store from "./store";

const REOPEN_MS = 1000;
const POLL_MS = 10_000;

let source: EventSource | null = null;
let failures = 0;
let lastPoll = 0;
let reopenAt = 0;

// Opens the stream unless it is open, and polls while it cannot be held.
export async function follow(): Promise<void> {
  open();
  if (source?.readyState === EventSource.OPEN) return current("live");
  if (failures >= 2) await poll();
}

async function poll(): Promise<void> {
  store.link.value = "polling";
  if (Date.now() - lastPoll < POLL_MS) return;
  lastPoll = Date.now();
  const before = loaded();
  await load().catch(failed);
  if (loaded() !== before) tell({ kind: "resync" });
}

function open(): void {
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

export function closeStream(): void {
  source?.close();
  source = null;
  failures = 0;
  reopenAt = 0;
}
