// What can be done with a job, each with what it would do and the same as a command.
import { useSignal } from "@preact/signals";
import { ApiError, jobPath, patch, post } from "../../api/client";
import type { JobRow, PlannedChange } from "../../api/types";
import { duration, secondsSince } from "../../format";
import { called, Command, Dialog, Field, FINISHED } from "../../parts/basics";
import { numberOf, RequestProblem } from "../../requests";
import { pathTo } from "../../router";
import { t, type Text } from "../../texts";
import { EffectsOf } from "./effects";

type Action = "hold" | "release" | "cancel" | "changePriority";

export function Actions({ job }: { job: JobRow }) {
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
  action: Action;
  onDone: (text: string) => void;
  onClose: () => void;
}

function Confirm({ job, action, onDone, onClose }: ConfirmProps) {
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
        <EffectsOf job={job} change={changeOf(action, priority.value)} />
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
  if (action === "cancel") await post(`${path}/cancel`, undefined);
  else await patch(path, action === "changePriority" ? { priority: priorityOf(priority) } : { held: action === "hold" });
}

const priorityOf = (text: string): number => numberOf(t("priority"), text, 0, 255);

// The change whose effects are asked for; null while the priority is none.
function changeOf(action: Action, priority: string): PlannedChange | null {
  if (action === "cancel") return { cancel: true };
  if (action !== "changePriority") return { held: action === "hold" };
  try {
    return { priority: priorityOf(priority) };
  } catch (error) {
    if (error instanceof RequestProblem) return null;
    throw error;
  }
}

function consequences(job: JobRow, action: Action): string[] {
  const runs = job.phase === "Running" || job.phase === "Starting";
  const found = [t(`${action === "changePriority" ? "priority" : action}Would` as Text)];
  if (action === "hold" && runs) found.push(t("holdRunning"));
  if (action === "cancel" && runs && job.startedAt) found.push(t("cancelRunning", duration(secondsSince(job.startedAt)), job.gpus));
  if ((action === "cancel" || action === "hold") && runs && job.workers > 1) found.push(t("endsAllWorkers", job.workers));
  return found;
}

function commandOf(job: JobRow, action: Action, priority: string): string {
  const id = job.number ?? job.name;
  const where = `--namespace ${job.namespace}`;
  if (action === "cancel") return `gcancel ${id} ${where}`;
  if (action === "changePriority") return `gjob update ${id} -p ${priority} ${where}`;
  return `gjob ${action} ${id} ${where}`;
}
