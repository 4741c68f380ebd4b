import { defineConfig } from "vite";

// Every file is one that the gateway's content security policy lets in: nothing inline, no data: scripts.
export default defineConfig({
  base: "/console/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  // The parts of the page Design have another colour scheme than the page: light-dark() must reach the browser as it is.
  build: { target: "es2022", cssTarget: ["chrome123", "firefox120", "safari17.5"], assetsInlineLimit: 0, modulePreload: { polyfill: false }, sourcemap: false },
});
