// The time that a page looks at: a range back from now, or the part of it that was brushed. Both are in the address.
import { computed } from "@preact/signals";
import { now } from "../format";
import { place, setQuery } from "../router";

export const RANGES = { "1h": 3600, "1d": 86_400, "1w": 7 * 86_400, "1mo": 31 * 86_400 } as const;
export type Range = keyof typeof RANGES;

export interface Span {
  // Seconds since 1970. Without an end, it goes on with the clock.
  since: number;
  until: number | null;
}

const asked = computed(() => {
  const { query } = place.value;
  const name = query.get("range") ?? "";
  const from = Date.parse(query.get("from") ?? "") / 1000;
  const to = Date.parse(query.get("to") ?? "") / 1000;
  return { name, brushed: from < to ? { since: from, until: to } : null };
});

export const range = computed<Range | "">(() => (asked.value.name in RANGES ? (asked.value.name as Range) : ""));
export const brushed = computed<Span | null>(() => asked.value.brushed);

// What the page shows now; `otherwise` where the address names no range.
export function spanNow(otherwise: Range): Span {
  return brushed.value ?? { since: clockSeconds() - RANGES[range.value || otherwise], until: null };
}

const clockSeconds = (): number => Math.floor(now.peek() / 1000);

export const iso = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;

export const brush = (since: number, until: number): void => setQuery({ from: iso(since), to: iso(Math.max(until, since + 60)) });
export const unbrush = (): void => setQuery({ from: "", to: "" });

// A part of its length earlier or later, at most until now.
export function shift(span: Span, part: number): void {
  const until = span.until ?? clockSeconds();
  const length = until - span.since;
  const end = Math.min(clockSeconds(), until + part * length);
  brush(end - length, end);
}

export const timesOf = (span: Span): string =>
  `since=${encodeURIComponent(iso(span.since))}${span.until === null ? "" : `&until=${encodeURIComponent(iso(span.until))}`}`;
