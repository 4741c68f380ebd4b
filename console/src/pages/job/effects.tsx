// What else an action would do: a dry run of the queue with and without it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, jobPath, post } from "../../api/client";
import type { Effects, JobRow, PlannedChange } from "../../api/types";
import { duration } from "../../format";
import { keyOf } from "../../live/store";
import { JobLink } from "../../parts/basics";
import { Verdict } from "../../parts/verdict";
import { TYPING_MS } from "../../requests";
import { t } from "../../texts";

// Asked again while a priority is typed; null for a change that is not complete yet.
export function EffectsOf({ job, change }: { job: JobRow; change: PlannedChange | null }) {
  const read = useSignal<{ found: Effects | null; problem: string }>({ found: null, problem: "" });
  const body = JSON.stringify(change);
  useEffect(() => {
    if (!change) return;
    const stop = new AbortController();
    const ask = () =>
      post<Effects>(`${jobPath(job.namespace, job.name)}/effects`, change, { signal: stop.signal }).then(
        (found) => (read.value = { found, problem: "" }),
        (error: unknown) => {
          if (error instanceof ApiError) read.value = { found: null, problem: error.message };
        },
      );
    const first = setTimeout(() => void ask(), TYPING_MS);
    return () => {
      clearTimeout(first);
      stop.abort();
    };
  }, [body, job.uid]);
  const { found, problem } = read.value;
  return (
    <div class="verdict stack" aria-live="polite">
      <h3>{t("effects")}</h3>
      {problem && <p class="problem">{problem}</p>}
      {found ? <Listed found={found} /> : <p>{problem ? "" : t("computing")}</p>}
    </div>
  );
}

function Listed({ found }: { found: Effects }) {
  const { own, simulatedSeconds } = found;
  const sooner = found.shifted.filter(isSooner);
  const later = found.shifted.filter((each) => !isSooner(each));
  return (
    <>
      {own && <Verdict said={own} />}
      {found.tasks > 0 && <p>{t("effectsTasks", found.tasks)}</p>}
      <Named title={t("effectsCancelled")} jobs={found.cancelled.map(({ job, after }) => ({ job, text: t("effectsAfter", after) }))} />
      <Named title={t("effectsReleased")} jobs={found.released.map((job) => ({ job, text: "" }))} />
      <Named title={t("effectsHeldUp")} jobs={found.heldUp.map((job) => ({ job, text: "" }))} />
      <Named title={t("effectsSooner", found.sooner)} jobs={sooner.map(shiftLine)} others={found.othersSooner} />
      <Named title={t("effectsLater", found.later)} jobs={later.map(shiftLine)} others={found.othersLater} />
      {found.sooner + found.later === 0 && <p>{t("effectsNone")}</p>}
      <p class="note">{simulatedSeconds === null ? t("effectsHow") : t("effectsHowFar", duration(simulatedSeconds))}</p>
    </>
  );
}

type Shifted = Effects["shifted"][number];

const isSooner = ({ beforeSeconds, afterSeconds }: Shifted): boolean => (afterSeconds ?? Infinity) < (beforeSeconds ?? Infinity);
const shiftLine = (each: Shifted): Line => ({ job: each.job, text: t("effectsShift", startIn(each.beforeSeconds), startIn(each.afterSeconds)) });

function startIn(seconds: number | null): string {
  if (seconds === null) return t("effectsUnknown");
  return seconds === 0 ? t("nowLine") : t("in", duration(seconds));
}

interface Line {
  job: Effects["released"][number];
  text: string;
}

const FIRST = 5;

// A title with its jobs, of which all but the first are folded away, and how many are another tenant's.
function Named({ title, jobs, others = 0 }: { title: string; jobs: readonly Line[]; others?: number }) {
  if (!jobs.length && !others) return null;
  return (
    <>
      <h4>{title}</h4>
      <Lines lines={jobs.slice(0, FIRST)} />
      {jobs.length > FIRST && (
        <details class="disclosure">
          <summary>{t("andMore", jobs.length - FIRST)}</summary>
          <Lines lines={jobs.slice(FIRST)} />
        </details>
      )}
      {others > 0 && <p>{t("effectsOthers", others)}</p>}
    </>
  );
}

const Lines = ({ lines }: { lines: readonly Line[] }) => (
  <ul class="bullets">
    {lines.map(({ job, text }) => (
      <li key={keyOf(job)}>
        <JobLink job={job} />
        {text && `: ${text}`}
      </li>
    ))}
  </ul>
);
