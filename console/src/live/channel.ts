// What the tabs of a browser say to each other.
import type { Delta } from "../api/types";
import type { Link } from "./store";

export type Message =
  | { kind: "delta"; delta: Delta }
  | { kind: "resync" }
  | { kind: "link"; link: Link; currentAt: number }
  | { kind: "session" };

const channel = "BroadcastChannel" in window ? new BroadcastChannel("dovetail-console") : null;

export const tell = (message: Message): void => channel?.postMessage(message);

export const listen = (hear: (message: Message) => void): void =>
  channel?.addEventListener("message", (event: MessageEvent<Message>) => hear(event.data));
