import { render } from "preact";
import { Shell } from "./shell/index";
import { start } from "./live/link";
import { arrive } from "./live/session";
import { startRouter } from "./router";
import "./preferences";

// The browser would keep an entry for each request, of which the page makes one every 2 s. Nothing reads them.
performance.setResourceTimingBufferSize(0);
startRouter();
render(<Shell />, document.getElementById("app") as HTMLElement);
void arrive().then(start);
