// The curves of a subject in the page's time, read again as often as there are new samples.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get } from "../api/client";
import type { Series } from "../api/types";
import { brushed, range, type Range, spanNow, timesOf } from "./range";

const AGAIN_MS = 30_000;

export interface Curves {
  found: Series | null;
  problem: string;
}

// `subject` is the query without times. Without `otherwise`, the whole of a job is asked for until a range is chosen.
export function useSeries(subject: string, otherwise: Range | null): Curves {
  const read = useSignal<Curves>({ found: null, problem: "" });
  const part = brushed.value;
  const key = part ? `${part.since} ${part.until}` : range.value;
  useEffect(() => {
    const stop = new AbortController();
    const ask = () => {
      const times = otherwise || part || range.peek() ? `&${timesOf(spanNow(otherwise ?? "1h"))}` : "";
      get<Series>(`/api/v3/series?${subject}${times}`, stop.signal).then(
        (found) => (read.value = { found, problem: "" }),
        (error: unknown) => {
          if (error instanceof ApiError) read.value = { found: error.status === 404 ? null : read.peek().found, problem: error.message };
        },
      );
    };
    ask();
    const again = setInterval(ask, AGAIN_MS);
    return () => {
      clearInterval(again);
      stop.abort();
    };
  }, [subject, otherwise, key]);
  return read.value;
}
