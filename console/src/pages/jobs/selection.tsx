// Jobs that are chosen in the table, and what can be done with all of them at once.
import { Ban, CirclePause, CirclePlay, X } from "lucide";
import { computed, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, jobPath, post } from "../../api/client";
import type { Effects, JobRow, PlannedChange } from "../../api/types";
import { Button, IconButton } from "../../design/button";
import { Dialog } from "../../design/overlay";
import { notify, notifyProblem } from "../../design/toast";
import { job as jobOf, keyOf } from "../../live/store";
import { called, FINISHED, JobLink, PhaseBadge } from "../../parts/basics";
import { apply, type Simple } from "../../parts/changes";
import { t, type Text } from "../../texts";
import { shown } from "./filter";

const chosen = signal<ReadonlySet<string>>(new Set());

// Those that are still there and can still be changed.
const selected = computed(() => [...chosen.value].map(jobOf).filter((job): job is JobRow => job !== undefined && !FINISHED.has(job.phase)));

export function SelectJob({ job }: { job: JobRow }) {
  if (FINISHED.has(job.phase)) return null;
  const key = keyOf(job);
  const toggle = (on: boolean) => {
    const next = new Set(chosen.value);
    if (on) next.add(key);
    else next.delete(key);
    chosen.value = next;
  };
  return <input type="checkbox" class="check" aria-label={t("selectJob", called(job))} checked={chosen.value.has(key)} onChange={(event) => toggle(event.currentTarget.checked)} />;
}

export function SelectAll() {
  const open = shown.value.filter((job) => !FINISHED.has(job.phase));
  const all = open.length > 0 && open.every((job) => chosen.value.has(keyOf(job)));
  return <input type="checkbox" class="check" aria-label={t("selectAll")} checked={all} disabled={!open.length} onChange={(event) => (chosen.value = new Set(event.currentTarget.checked ? open.map(keyOf) : []))} />;
}

const held = (job: JobRow): boolean => job.phase === "Held" || job.phase === "Suspended";

// The bar over the table while jobs are chosen.
export function Selection() {
  const open = useSignal<Simple | null>(null);
  const list = selected.value;
  if (!list.length) return null;
  const releasable = list.filter(held);
  const holdable = list.filter((job) => !held(job));
  return (
    <div class="selection" role="group" aria-label={t("selectedJobs", list.length)}>
      <span>{t("selectedJobs", list.length)}</span>
      {holdable.length > 0 && <Button small icon={CirclePause} onClick={() => (open.value = "hold")}>{t("hold")}</Button>}
      {releasable.length > 0 && <Button small icon={CirclePlay} onClick={() => (open.value = "release")}>{t("release")}</Button>}
      <Button small kind="risky" icon={Ban} onClick={() => (open.value = "cancel")}>{t("cancel")}</Button>
      <IconButton small icon={X} label={t("clearSelection")} onClick={() => (chosen.value = new Set())} />
      {open.value && <Confirm action={open.value} jobs={open.value === "hold" ? holdable : open.value === "release" ? releasable : list} onClose={() => (open.value = null)} />}
    </div>
  );
}

const SHOWN = 8;

function Confirm({ action, jobs, onClose }: { action: Simple; jobs: readonly JobRow[]; onClose: () => void }) {
  const busy = useSignal(false);
  const perform = async () => {
    busy.value = true;
    const answers = await Promise.allSettled(jobs.map((job) => apply(job, action)));
    const failed = answers.flatMap((each) => (each.status === "rejected" ? [each.reason as unknown] : []));
    if (failed.length < jobs.length) notify(t(`${action}Done` as Text, t("jobsCounted", jobs.length - failed.length)));
    if (failed.length) notifyProblem(t("someFailed", failed.length, failed[0] instanceof ApiError ? failed[0].message : String(failed[0])));
    chosen.value = new Set();
    onClose();
  };
  return (
    <Dialog title={t(`${action}These` as Text, jobs.length)} onClose={onClose}>
      <p>{t(`${action}Would` as Text)}</p>
      <ul class="stack tight">
        {jobs.slice(0, SHOWN).map((job) => (
          <li key={keyOf(job)} class="row">
            <JobLink job={job} /> <PhaseBadge phase={job.phase} />
          </li>
        ))}
      </ul>
      {jobs.length > SHOWN && <p class="muted">{t("andMore", jobs.length - SHOWN)}</p>}
      <Together action={action} jobs={jobs} />
      <div class="buttons">
        <Button onClick={onClose}>{t(action === "cancel" ? "keepThem" : "close")}</Button>
        <Button kind={action === "cancel" ? "danger" : "primary"} disabled={busy.value} onClick={() => void perform()}>
          {t(`${action}These` as Text, jobs.length)}
        </Button>
      </div>
    </Dialog>
  );
}

// The effects of so many jobs are asked for one by one; each is a simulation of the queue.
const ASKED = 4;

// What each of the first jobs alone would do to others: the queue simulates one change at a time.
function Together({ action, jobs }: { action: Simple; jobs: readonly JobRow[] }) {
  const found = useSignal<readonly Effects[] | null>(null);
  const asked = jobs.slice(0, ASKED);
  useEffect(() => {
    const stop = new AbortController();
    const change: PlannedChange = action === "cancel" ? { cancel: true } : { held: action === "hold" };
    void Promise.allSettled(asked.map((job) => post<Effects>(`${jobPath(job.namespace, job.name)}/effects`, change, { signal: stop.signal }))).then((answers) => {
      if (!stop.signal.aborted) found.value = answers.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    });
    return () => stop.abort();
  }, []);
  const own = new Set(jobs.map(keyOf));
  const dependents = new Map((found.value ?? []).flatMap((each) => [...each.cancelled.map(({ job }) => job), ...each.heldUp]).map((job) => [keyOf(job), job]));
  const others = [...dependents.values()].filter((job) => !own.has(keyOf(job)));
  return (
    <div class="verdict" aria-live="polite">
      <h3>{t("effects")}</h3>
      {found.value === null ? (
        <p>{t("computing")}</p>
      ) : (
        <>
          <ul class="bullets">
            {others.map((job) => (
              <li key={keyOf(job)}>
                <JobLink job={job} />: {t(action === "cancel" ? "effectsCancelled" : "effectsHeldUp")}
              </li>
            ))}
            {found.value.map((each, index) => each.sooner + each.later > 0 && (
              <li key={index}>{t("effectsOfOne", called(asked[index] as JobRow), each.sooner, each.later)}</li>
            ))}
          </ul>
          {others.length === 0 && found.value.every((each) => each.sooner + each.later === 0) && <p>{t("effectsNone")}</p>}
          {jobs.length > ASKED && <p class="note">{t("effectsOfFirst", ASKED)}</p>}
        </>
      )}
    </div>
  );
}
