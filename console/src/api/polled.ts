// Answers that a page reads while it is open, again every few seconds.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get } from "./client";

export interface Read<T> {
  found: T;
  problem: string;
}

// The latest answer, `nothing` before the first one. An error leaves it, with the gateway's sentence as the problem.
export function usePolled<T>(path: string, everyMs: number, nothing: T): Read<T> {
  const read = useSignal<Read<T>>({ found: nothing, problem: "" });
  useEffect(() => {
    const stop = new AbortController();
    const ask = () =>
      get<T>(path, stop.signal).then(
        (found) => (read.value = { found, problem: "" }),
        (error: unknown) => {
          if (error instanceof ApiError) read.value = { ...read.value, problem: error.message };
        },
      );
    void ask();
    const again = setInterval(() => void ask(), everyMs);
    return () => {
      clearInterval(again);
      stop.abort();
    };
  }, [path, everyMs]);
  return read.value;
}
