// Pages are paths below /console/, and their filters are the query: every view can be shared as a link.
import { signal } from "@preact/signals";

export const BASE = "/console/";

export interface Place {
  page: string;
  // What follows the page's name, such as namespace and name of a job.
  rest: readonly string[];
  query: URLSearchParams;
}

const read = (): Place => {
  const [page = "", ...rest] = location.pathname.slice(BASE.length).split("/").map(decodeURIComponent);
  return { page: page || "now", rest: rest.filter(Boolean), query: new URLSearchParams(location.search) };
};

export const place = signal<Place>(read());

export const pathTo = (page: string, ...rest: string[]): string =>
  BASE + [page, ...rest].map(encodeURIComponent).join("/");

export function go(url: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  place.value = read();
}

// Changes the filters of this page; empty values leave the URL.
export function setQuery(changes: Record<string, string>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

export function startRouter(): void {
  addEventListener("popstate", () => {
    place.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const anchor = (event.target as Element).closest?.("a");
    if (!anchor || anchor.target || anchor.hasAttribute("download")) return;
    if (anchor.origin !== location.origin || !anchor.pathname.startsWith(BASE)) return;
    event.preventDefault();
    go(anchor.pathname + anchor.search);
    document.querySelector("main")?.focus();
    scrollTo(0, 0);
  });
}
