import { render } from "preact";
import { Shell } from "./shell";
import { start } from "./live/link";
import { redeemTicket } from "./live/session";
import { startRouter } from "./router";
import "./preferences";

startRouter();
render(<Shell />, document.getElementById("app") as HTMLElement);
void redeemTicket().then(start);
