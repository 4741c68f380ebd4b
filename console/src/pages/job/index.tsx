// Job: what it does or why it waits, what would change that, and what can be done with it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get, jobPath } from "../../api/client";
import type { Explanation, JobDetails, JobRow } from "../../api/types";
import { age, moment, withLocalTimes } from "../../format";
import { job as jobOf, link } from "../../live/store";
import { called, Command, ExpectedStart, FINISHED, PhaseMark, Section } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { manifest } from "../../requests";
import { place } from "../../router";
import { t } from "../../texts";
import { Actions } from "./actions";
import { Devices } from "./devices";
import { Logs } from "./logs";
import { Timeline } from "./timeline";
import { currentSentence, useExplanation, Why } from "./why";

export function JobPage() {
  const [namespace = "", name = ""] = place.value.rest;
  const row = jobOf(`${namespace}/${name}`);
  const details = useDetails(namespace, name, row);
  const explanation = useExplanation(row);
  if (!row) return <h1>{link.value === "live" || link.value === "polling" ? t("noJob", name, namespace) : t("starting")}</h1>;
  return (
    <>
      <h1>
        {t("job")} {called(row)} <PhaseMark phase={row.phase} />
      </h1>
      <p class="sentence" aria-live="polite">
        {sentence(row, explanation.found)}
      </p>
      <Facts job={row} />
      <Actions job={row} />
      {!FINISHED.has(row.phase) && <Why job={row} details={details} read={explanation} />}
      <Devices job={row} />
      {row.startedAt && <Logs job={row} />}
      <Timeline job={row} details={details} />
      <Commands job={row} details={details} />
    </>
  );
}

// Spec and status, read again whenever the job's row changes.
function useDetails(namespace: string, name: string, row: JobRow | undefined): JobDetails | null {
  const details = useSignal<JobDetails | null>(null);
  const changed = row ? `${row.uid} ${row.phase} ${row.reason} ${row.priority} ${row.startedAt} ${row.completedAt}` : "";
  useEffect(() => {
    if (!changed) return;
    void get<JobDetails>(jobPath(namespace, name)).then(
      (found) => (details.value = found),
      (error: unknown) => {
        if (!(error instanceof ApiError)) details.value = null;
      },
    );
  }, [namespace, name, changed]);
  return details.value;
}

function sentence(job: JobRow, said: Explanation | null): string {
  const message = messageOf(job);
  // The explanation has newer numbers, in English.
  if (message) return withLocalTimes(message === job.message ? currentSentence(message, said) : message);
  if (job.phase === "Running") return `${t("running")}: ${job.nodes.join(", ")}`;
  return "";
}

function Facts({ job }: { job: JobRow }) {
  const rows: [string, preact.ComponentChildren][] = [
    [t("namespace"), job.namespace],
    [t("user"), job.user],
    [t("request"), job.workers > 1 ? `${job.workers} × ${job.request}` : job.request],
    [t("priority"), job.priority],
    [t("submitted"), <time dateTime={job.submittedAt} title={moment(job.submittedAt)}>{age(job.submittedAt)}</time>],
  ];
  if (job.project) rows.push([t("project"), job.project]);
  if (job.position !== null) rows.push([t("position"), job.position]);
  if (job.estimatedStart && !job.startedAt) rows.push([t("expectedStart"), <ExpectedStart job={job} />]);
  if (job.startedAt) rows.push([t("started"), <time dateTime={job.startedAt} title={moment(job.startedAt)}>{age(job.startedAt)}</time>]);
  if (job.completedAt) rows.push([t("ended"), <time dateTime={job.completedAt} title={moment(job.completedAt)}>{age(job.completedAt)}</time>]);
  return (
    <dl class="facts">
      {rows.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Commands({ job, details }: { job: JobRow; details: JobDetails | null }) {
  const id = job.number ?? job.name;
  return (
    <Section title={t("asCommand")}>
      <Command lines={[`gjob show ${id} --namespace ${job.namespace}`, `dovetail explain ${id} --namespace ${job.namespace}`]} />
      {details && <Command label={t("asYaml")} lines={[manifest(job.namespace, job.name, details.spec)]} />}
    </Section>
  );
}
