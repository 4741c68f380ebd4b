import { render } from "preact";
import { Shell } from "./shell";
import { start } from "./live/link";
import { arrive } from "./live/session";
import { startRouter } from "./router";
import "./preferences";

startRouter();
render(<Shell />, document.getElementById("app") as HTMLElement);
void arrive().then(start);
