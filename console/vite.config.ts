import { defineConfig } from "vite";

// Every file is one that the gateway's content security policy lets in: nothing inline, no data: scripts.
export default defineConfig({
  base: "/console/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false }, sourcemap: false },
});
