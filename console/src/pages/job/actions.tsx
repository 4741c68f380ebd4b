// What can be done with a job, each with what it would do and the same as a command.
import { Ban, CirclePause, CirclePlay, Copy, Gauge, type IconNode } from "lucide";
import { useSignal } from "@preact/signals";
import { failure } from "../../api/client";
import type { JobRow, PlannedChange } from "../../api/types";
import { Button, ButtonLink } from "../../design/button";
import { Command } from "../../design/command";
import { Field, Input } from "../../design/field";
import { Dialog } from "../../design/overlay";
import { notify } from "../../design/toast";
import { duration, secondsSince } from "../../format";
import { called, FINISHED } from "../../parts/basics";
import { apply, changePriority, commandOf, type Simple } from "../../parts/changes";
import { numberOf, RequestProblem } from "../../requests";
import { pathTo } from "../../router";
import { t, type Text } from "../../texts";
import { EffectsOf } from "./effects";

type Action = Simple | "changePriority";

const ICONS: Record<Action, IconNode> = { hold: CirclePause, release: CirclePlay, changePriority: Gauge, cancel: Ban };

export function Actions({ job }: { job: JobRow }) {
  const open = useSignal<Action | null>(null);
  const held = job.phase === "Held" || job.phase === "Suspended";
  const offered: Action[] = FINISHED.has(job.phase) ? [] : [held ? "release" : "hold", "changePriority", "cancel"];
  return (
    <div class="row" role="group" aria-label={t("actions")}>
      <ButtonLink icon={Copy} href={`${pathTo("submit")}?${cloneQuery(job)}`}>
        {t("clone")}
      </ButtonLink>
      {offered.map((action) => (
        <Button key={action} icon={ICONS[action]} kind={action === "cancel" ? "risky" : "secondary"} onClick={() => (open.value = action)}>
          {t(action)}
        </Button>
      ))}
      {open.value && <Confirm job={job} action={open.value} onClose={() => (open.value = null)} />}
    </div>
  );
}

const cloneQuery = (job: JobRow): string =>
  new URLSearchParams({ from: `${job.namespace}/${job.name}`, namespace: job.namespace, gpu: job.request === "cpu" ? "" : job.request }).toString();

interface ConfirmProps {
  job: JobRow;
  action: Action;
  onClose: () => void;
}

function Confirm({ job, action, onClose }: ConfirmProps) {
  const priority = useSignal(String(job.priority));
  const problem = useSignal("");
  const busy = useSignal(false);
  const perform = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    try {
      if (action === "changePriority") await changePriority(job, priorityOf(priority.value));
      else await apply(job, action);
      notify(t(`${action}Done` as Text, called(job)));
      onClose();
    } catch (error) {
      problem.value = failure(error);
    }
    busy.value = false;
  };
  const change = changeOf(action, priority.value);
  return (
    <Dialog title={t(`${action}Ask` as Text, called(job))} onClose={onClose}>
      <form class="stack" onSubmit={(event) => void perform(event)}>
        {consequences(job, action).map((text) => (
          <p key={text}>{text}</p>
        ))}
        {action === "changePriority" && (
          <Field label={t("priority")} hint={t("priorityHow")}>
            <Input inputMode="numeric" value={priority.value} onText={(text) => (priority.value = text)} />
          </Field>
        )}
        <EffectsOf job={job} change={change} />
        <Command lines={[action === "changePriority" ? `gjob update ${job.number ?? job.name} -p ${priority.value} --namespace ${job.namespace}` : commandOf(job, action)]} />
        <p role="alert" class="problem">
          {problem.value}
        </p>
        <div class="buttons">
          <Button onClick={onClose}>{t(`${action}Not` as Text)}</Button>
          <Button type="submit" kind={action === "cancel" ? "danger" : "primary"} disabled={busy.value}>
            {t(`${action}Yes` as Text)}
          </Button>
        </div>
      </form>
    </Dialog>
  );
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
  const found = action === "changePriority" ? [] : [t(`${action}Would` as Text)];
  if (action === "hold" && runs) found.push(t("holdRunning"));
  if (action === "cancel" && runs && job.startedAt) found.push(t("cancelRunning", duration(secondsSince(job.startedAt)), job.gpus));
  if ((action === "cancel" || action === "hold") && runs && job.workers > 1) found.push(t("endsAllWorkers", job.workers));
  return found;
}
