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
  return { page: page || "overview", rest: rest.filter(Boolean), query: new URLSearchParams(location.search) };
};

export const place = signal<Place>(read());

export const pathTo = (page: string, ...rest: string[]): string =>
  BASE + [page, ...rest].map(encodeURIComponent).join("/");

export function go(url: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  place.value = read();
}

// The address of this page with other filters; empty values leave it.
export function withQuery(changes: Record<string, string | readonly string[]>): string {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of typeof value === "string" ? [value] : value) if (each) query.append(name, each);
  }
  const text = query.toString();
  return location.pathname + (text ? `?${text}` : "");
}

export const setQuery = (changes: Record<string, string | readonly string[]>): void => go(withQuery(changes), { replace: true });

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
