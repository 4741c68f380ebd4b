// Leader election among the tabs of a browser: the one with the Web Lock reads the stream for all.
//
// Browsers open six connections to one server, so a stream for each tab would block the seventh tab.
import { ApiError } from "../api/client";
import { tell } from "./channel";
import { connect, failed, load, signedIn } from "./load";
import * as store from "./store";
import { closeStream, follow } from "./stream";

const PING_MS = 2000;
// A hidden tab's timers are slow, so that it does not lead for long.
const HIDDEN_MS = 60_000;

let leading = false;
let release: (() => void) | null = null;

export const leads = (): boolean => leading;

export async function lead(): Promise<void> {
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

export function onVisibility(): void {
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
  return follow();
}
