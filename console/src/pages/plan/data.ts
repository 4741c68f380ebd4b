// What the plan needs beyond the live data: kept room, reservations and drains, and the history of ended jobs.
import { computed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get } from "../../api/client";
import { type Read, usePolled } from "../../api/polled";
import type { HistoryRecord, PlanPage } from "../../api/types";
import { currentAt } from "../../live/store";
import { t } from "../../texts";

export const REDRAW_MS = 5000;
// Changes every few seconds, and not with each event: a bar moves by less than a pixel meanwhile.
export const redraw = computed(() => Math.floor(currentAt.value / REDRAW_MS));
const AGAIN_MS = 10_000;
const HISTORY_AGAIN_MS = 300_000;
// Each namespace is a question to the operator, so few are asked; the others can be chosen.
const MOST_NAMESPACES = 4;
const MOST_RECORDS = 500;
const NOTHING: PlanPage = { items: [], kept: [], windows: [], drains: [], next: null };

const sentence = (error: unknown): string => (error instanceof ApiError ? error.message : "");

export const usePlan = (): Read<PlanPage> => usePolled("/api/v3/plan?bounded=true&limit=1000", AGAIN_MS, NOTHING);

export function useHistory(namespaces: readonly string[], hours: number): Read<readonly HistoryRecord[]> {
  const read = useSignal<Read<readonly HistoryRecord[]>>({ found: [], problem: "" });
  const asked = namespaces.slice(0, MOST_NAMESPACES);
  const left = namespaces.length > MOST_NAMESPACES;
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      const since = `${new Date(Date.now() - hours * 3_600_000).toISOString().slice(0, 19)}Z`;
      const answers = await Promise.allSettled(
        asked.map((name) => get<{ items: HistoryRecord[] }>(`/api/v3/history?namespace=${encodeURIComponent(name)}&since=${since}&limit=${MOST_RECORDS}`, stop.signal)),
      );
      if (stop.signal.aborted) return;
      const failed = answers.find((each) => each.status === "rejected");
      const problem = failed ? t("planNoHistory", sentence(failed.reason)) : left ? t("planSomeHistory", asked.join(", ")) : "";
      read.value = { found: answers.flatMap((each) => (each.status === "fulfilled" ? each.value.items : [])), problem };
    };
    void ask();
    const again = setInterval(() => void ask(), HISTORY_AGAIN_MS);
    return () => {
      clearInterval(again);
      stop.abort();
    };
  }, [asked.join(" "), left, hours]);
  return read.value;
}
