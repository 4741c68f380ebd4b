// Keeps the store current: this tab's own start, and what the other tabs say. One of them leads and reads the stream.
import { listen, type Message, tell } from "./channel";
import { lead, leads, onVisibility } from "./leader";
import { apply, connect, failed, forget, load } from "./load";
import * as store from "./store";
import { closeStream } from "./stream";

export async function start(): Promise<void> {
  listen((message) => void hear(message));
  document.addEventListener("visibilitychange", onVisibility);
  await connect();
  void lead();
}

// Called after signing in or out, in this tab.
export async function sessionChanged(): Promise<void> {
  tell({ kind: "session" });
  await restart();
}

async function restart(): Promise<void> {
  closeStream();
  forget();
  store.link.value = "starting";
  await connect();
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
      if (leads()) return;
      // A tab that could not load its data yet does so now.
      if (store.sequence() < 0 && message.link !== "away") return connect();
      store.link.value = message.link;
      store.currentAt.value = message.currentAt;
  }
}
