// What a change of a quota would do now: guarantees of other quotas, and jobs that would start, wait or end.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, post } from "../../api/client";
import type { QuotaPlan, QuotaRow } from "../../api/types";
import { gpus } from "../../format";
import { JobLink } from "../../parts/basics";
import { TYPING_MS } from "../../requests";
import { t } from "../../texts";

const FIRST = 8;

// Asked again while one types; null while nothing is changed.
export function QuotaEffects({ quota, spec }: { quota: QuotaRow; spec: Record<string, unknown> | null }) {
  const read = useSignal<{ found: QuotaPlan | null; problem: string }>({ found: null, problem: "" });
  const body = JSON.stringify(spec);
  useEffect(() => {
    read.value = { found: null, problem: "" };
    if (!spec) return;
    const stop = new AbortController();
    const ask = () =>
      post<QuotaPlan>(`/api/v3/quotas/${encodeURIComponent(quota.name)}/effects`, { spec }, { signal: stop.signal }).then(
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
  }, [body, quota.name, quota.generation]);
  const { found, problem } = read.value;
  return (
    <section class="verdict stack" aria-live="polite" aria-label={t("quotaEffects")}>
      <h3>{t("quotaEffects")}</h3>
      {!spec ? <p class="muted">{t("quotaUnchanged")}</p> : problem ? <p class="problem">{problem}</p> : found ? <Listed found={found} /> : <p>{t("computing")}</p>}
    </section>
  );
}

function Listed({ found }: { found: QuotaPlan }) {
  const guarantees = found.quotas.filter(({ before, after }) => before !== after);
  const jobs = found.starts.length + found.waits.length + found.ends.length + found.othersStart + found.othersWait + found.othersEnd;
  return (
    <>
      {found.contradictions.map((each) => (
        <p key={each} class="problem" lang="en">{each}</p>
      ))}
      {guarantees.length > 0 && (
        <>
          <h4>{t("guaranteesThen")}</h4>
          <ul class="bullets">
            {guarantees.map(({ name, before, after }) => (
              <li key={name}>{t("guaranteeShift", name, before === null ? "–" : gpus(before), after === null ? "–" : gpus(after))}</li>
            ))}
          </ul>
        </>
      )}
      <Jobs title={t("wouldEnd")} jobs={found.ends.map(({ job, by }) => ({ job, by }))} others={found.othersEnd} />
      <Jobs title={t("wouldStart")} jobs={found.starts.map((job) => ({ job }))} others={found.othersStart} />
      <Jobs title={t("wouldWait")} jobs={found.waits.map((job) => ({ job }))} others={found.othersWait} />
      {jobs === 0 && <p>{t("noJobMoves")}</p>}
      <p class="note">{t("quotaEffectsHow")}</p>
    </>
  );
}

// Jobs as namespace/name, and for whom each ends.
function Jobs({ title, jobs, others }: { title: string; jobs: readonly { job: string; by?: string }[]; others: number }) {
  if (!jobs.length && !others) return null;
  const more = jobs.length - FIRST;
  return (
    <>
      <h4>{title}</h4>
      <ul class="bullets">
        {jobs.slice(0, FIRST).map(({ job, by }) => (
          <li key={job}>
            <Link job={job} />
            {by && ` ${t("endsFor", by)}`}
          </li>
        ))}
        {more > 0 && <li>{t("andMore", more)}</li>}
        {others > 0 && <li>{t("effectsOthers", others)}</li>}
      </ul>
    </>
  );
}

function Link({ job }: { job: string }) {
  const [namespace = "", name = ""] = job.split("/");
  return <JobLink job={{ namespace, name, number: null }} />;
}
