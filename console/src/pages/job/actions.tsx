// What can be done with a job, each with what it would do and the same as a command.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, jobPath, patch, post } from "../../api/client";
import type { DryRun, JobDetails, JobRow, JobSpec } from "../../api/types";
import { duration, secondsSince } from "../../format";
import { jobs } from "../../live/store";
import { called, Command, Dialog, Field, FINISHED } from "../../parts/basics";
import { numberOf, RequestProblem, specOf } from "../../requests";
import { pathTo } from "../../router";
import { t, type Text } from "../../texts";
import { Verdict } from "../ask";

const TYPING_MS = 300;

type Action = "hold" | "release" | "cancel" | "changePriority";

export function Actions({ job, details }: { job: JobRow; details: JobDetails | null }) {
  const open = useSignal<Action | null>(null);
  const done = useSignal("");
  const held = job.phase === "Held" || job.phase === "Suspended";
  const offered: Action[] = FINISHED.has(job.phase) ? [] : [held ? "release" : "hold", "changePriority", "cancel"];
  return (
    <div class="actions" role="group" aria-label={t("actions")}>
      {offered.map((action) => (
        <button key={action} type="button" onClick={() => (open.value = action)}>
          {t(action)}
        </button>
      ))}
      <a class="button" href={`${pathTo("ask")}?${cloneQuery(job)}`}>
        {t("clone")}
      </a>
      <span role="status">{done.value}</span>
      {open.value && (
        <Confirm
          job={job}
          details={details}
          action={open.value}
          onDone={(text) => {
            done.value = text;
            open.value = null;
          }}
          onClose={() => (open.value = null)}
        />
      )}
    </div>
  );
}

const cloneQuery = (job: JobRow): string =>
  new URLSearchParams({ from: `${job.namespace}/${job.name}`, namespace: job.namespace, gpu: job.request === "cpu" ? "" : job.request }).toString();

interface ConfirmProps {
  job: JobRow;
  details: JobDetails | null;
  action: Action;
  onDone: (text: string) => void;
  onClose: () => void;
}

function Confirm({ job, details, action, onDone, onClose }: ConfirmProps) {
  const priority = useSignal(String(job.priority));
  const problem = useSignal("");
  const perform = async (event: Event) => {
    event.preventDefault();
    try {
      await run(job, action, priority.value);
      onDone(t("done", t(action as Text)));
    } catch (error) {
      problem.value = error instanceof ApiError || error instanceof RequestProblem ? error.message : t("failed", String(error));
    }
  };
  return (
    <Dialog title={`${t(action)}: ${called(job)}`} onClose={onClose}>
      <form onSubmit={(event) => void perform(event)}>
        {consequences(job, action).map((text) => (
          <p key={text}>{text}</p>
        ))}
        {action === "changePriority" && (
          <Field label={t("priority")}>
            <input inputMode="numeric" value={priority.value} onInput={(event) => (priority.value = event.currentTarget.value)} />
          </Field>
        )}
        {action === "changePriority" && job.phase === "Queued" && details && <WithPriority job={job} spec={details.spec} priority={priority.value} />}
        <Command lines={[commandOf(job, action, priority.value)]} />
        <p role="alert" class="problem">
          {problem.value}
        </p>
        <button type="submit">{action === "changePriority" ? t("apply") : t(action)}</button>{" "}
        <button type="button" onClick={onClose}>
          {t("close")}
        </button>
      </form>
    </Dialog>
  );
}

async function run(job: JobRow, action: Action, priority: string): Promise<void> {
  const path = jobPath(job.namespace, job.name);
  switch (action) {
    case "hold":
    case "release":
      await patch(path, { held: action === "hold" });
      return;
    case "changePriority":
      await patch(path, { priority: numberOf(t("priority"), priority, 0, 255) });
      return;
    case "cancel":
      await post(`${path}/cancel`, undefined);
  }
}

function consequences(job: JobRow, action: Action): string[] {
  const runs = job.phase === "Running" || job.phase === "Starting";
  const dependents = dependentsOf(job);
  const found = [t(`${action === "changePriority" ? "priority" : action}Would` as Text)];
  if (action === "hold" && runs) found.push(t("holdRunning"));
  if (action === "cancel" && runs && job.startedAt) found.push(t("cancelRunning", duration(secondsSince(job.startedAt)), job.gpus));
  if (action === "cancel" && dependents.length) found.push(t("cancelAlso", dependents.map(called).join(", ")));
  return found;
}

// The jobs that wait for this one, and those that wait for them.
function dependentsOf(job: JobRow): JobRow[] {
  const open = jobs.value.filter((each) => each.namespace === job.namespace && each.after.length > 0 && !FINISHED.has(each.phase));
  const found = new Map<string, JobRow>();
  for (let names = [job.name]; names.length; ) {
    const more = open.filter((each) => !found.has(each.name) && each.after.some((name) => names.includes(name)));
    for (const each of more) found.set(each.name, each);
    names = more.map((each) => each.name);
  }
  return [...found.values()];
}

// What the queue would say with another priority, while it is typed.
function WithPriority({ job, spec, priority }: { job: JobRow; spec: JobSpec; priority: string }) {
  const said = useSignal<DryRun | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      try {
        const body = { namespace: job.namespace, spec: specOf({ gpu: "", priority }, spec), inPlaceOf: job.name };
        said.value = await post<DryRun>("/api/v3/dry-run", body, { signal: stop.signal });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (!(error instanceof ApiError || error instanceof RequestProblem)) throw error;
        said.value = null;
      }
    };
    const first = setTimeout(() => void ask(), TYPING_MS);
    return () => {
      clearTimeout(first);
      stop.abort();
    };
  }, [priority, job.uid]);
  if (!said.value) return null;
  return (
    <div role="status" class="verdict">
      <strong>{t("afterChange")}</strong> <Verdict said={said.value} />
    </div>
  );
}

function commandOf(job: JobRow, action: Action, priority: string): string {
  const id = job.number ?? job.name;
  const where = `--namespace ${job.namespace}`;
  if (action === "cancel") return `gcancel ${id} ${where}`;
  if (action === "changePriority") return `gjob update ${id} -p ${priority} ${where}`;
  return `gjob ${action} ${id} ${where}`;
}
