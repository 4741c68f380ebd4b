// How many GPU hours were promised but idle: of a job since its start, of others in the last days, as the gateway measured.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../api/client";
import type { JobRow, Series, Usage } from "../api/types";
import { keyOf } from "../live/store";

export const IDLE_DAYS = 7;
const DAY_MS = 86_400_000;
const HOUR = 3600;
const AGAIN_MS = 60_000;

const sum = (values: readonly (number | null)[] | null): number => (values ?? []).reduce<number>((all, each) => all + (each ?? 0), 0);

async function ofJob(job: JobRow, signal: AbortSignal): Promise<readonly [string, number][]> {
  const found = await get<Series>(`/api/v3/series?of=Job&namespace=${encodeURIComponent(job.namespace)}&name=${encodeURIComponent(job.name)}`, signal);
  return found.items.map((row) => [keyOf(job), ((sum(row.promised) - sum(row.used)) * found.stepSeconds) / HOUR]);
}

async function ofGroups(by: string, signal: AbortSignal): Promise<readonly [string, number][]> {
  const since = new Date(Date.now() - (IDLE_DAYS - 1) * DAY_MS).toISOString().slice(0, 10);
  const found = await get<Usage>(`/api/v3/usage?by=${by.slice(0, 1).toUpperCase()}${by.slice(1)}&since=${since}T00:00:00Z`, signal);
  return found.items.map((row) => [row.group, row.gpuHours - row.usedHours]);
}

// By the key of each of these jobs, or by the name of each user, namespace or project where no job is asked for.
export function useIdleHours(by: string, jobs: readonly JobRow[]): ReadonlyMap<string, number> {
  const read = useSignal<ReadonlyMap<string, number>>(new Map());
  const asked = by === "job" ? jobs.map(keyOf).sort().join(" ") : by;
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      const answers = await Promise.allSettled(by === "job" ? jobs.map((job) => ofJob(job, stop.signal)) : [ofGroups(by, stop.signal)]);
      if (!stop.signal.aborted) read.value = new Map(answers.flatMap((each) => (each.status === "fulfilled" ? each.value : [])));
    };
    void ask();
    const again = setInterval(() => void ask(), AGAIN_MS);
    return () => {
      clearInterval(again);
      stop.abort();
    };
  }, [asked]);
  return read.value;
}
