// Queue: all jobs as a table, with gqueue's filters.
import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { JobRow } from "../../api/types";
import { age } from "../../format";
import { byName, currentAt, jobs, keyOf } from "../../live/store";
import { Command, ExpectedStart, Field, FINISHED, JobLink, PhaseMark, phaseName } from "../../parts/basics";
import { type Column, VirtualTable } from "../../parts/virtual_table";
import { language } from "../../preferences";
import { messageOf } from "../../reasons";
import { place, setQuery } from "../../router";
import { t } from "../../texts";
import { asCommand, COMPLETED, filter, matching, PHASES, shown, UNFINISHED } from "./filter";

const COLUMNS = (): Column<JobRow>[] => [
  { id: "position", title: t("position"), number: true, cell: (job) => job.position ?? "" },
  { id: "number", title: t("number"), number: true, cell: (job) => job.number ?? "" },
  { id: "name", title: t("name"), cell: (job) => <JobLink job={{ ...job, number: null }} /> },
  { id: "state", title: t("state"), cell: (job) => <PhaseMark phase={job.phase} /> },
  { id: "gpus", title: t("request"), cell: (job) => (job.workers > 1 ? `${job.workers} × ${job.request}` : job.request) },
  { id: "start", title: t("expectedStart"), cell: (job) => <ExpectedStart job={job} /> },
  { id: "why", title: t("why"), cell: (job) => <span class="why">{messageOf(job) || job.nodes.join(", ")}</span> },
  { id: "priority", title: t("priority"), number: true, cell: (job) => job.priority },
  { id: "user", title: t("user"), cell: (job) => job.user.replace("system:serviceaccount:", "") },
  { id: "namespace", title: t("namespace"), cell: (job) => job.namespace },
  { id: "submitted", title: t("submitted"), cell: (job) => age(job.submittedAt) },
];

export function QueuePage() {
  const columns = useMemo(COLUMNS, [language.value]);
  const choices = useChoices();
  return (
    <>
      <h1>{t("queue")}</h1>
      <Tabs />
      <div class="filters" role="search">
        <Field label={t("search")}>
          <input type="search" value={place.value.query.get("search") ?? ""} onInput={(event) => setQuery({ search: event.currentTarget.value })} />
        </Field>
        <Text name="jobs" label={t("numbers")} />
        <Text name="names" label={t("names")} />
        <Choice name="namespace" label={t("namespace")} values={choices.namespace} />
        <Choice name="user" label={t("user")} values={choices.user} />
        <Choice name="project" label={t("project")} values={choices.project} />
        <Choice name="reason" label={t("reason")} values={choices.reason} />
      </div>
      <p role="status" class="note">
        {shown.value.length ? t("jobsShown", shown.value.length, jobs.value.length) : t("noJobs")}
      </p>
      <VirtualTable
        label={t("queue")}
        rows={shown.value}
        columns={columns}
        keyOf={keyOf}
        sort={filter.value.sort}
        onSort={(sort) => setQuery({ sort })}
      />
      <Command lines={[asCommand()]} />
    </>
  );
}

function Tabs() {
  const counts = new Map<string, number>(PHASES.map((phase) => [phase, 0]));
  for (const job of matching.value) counts.set(job.phase, (counts.get(job.phase) ?? 0) + 1);
  const unfinished = matching.value.filter((job) => !FINISHED.has(job.phase)).length;
  const tab = (state: string, label: string, count: number) => (
    <button key={state} type="button" aria-pressed={filter.value.state === state} onClick={() => setQuery({ state: state === UNFINISHED ? "" : state })}>
      {label} <span class="count">{count}</span>
    </button>
  );
  return (
    <div class="tabs" role="group" aria-label={t("state")}>
      {tab(UNFINISHED, t("unfinished"), unfinished)}
      {tab(COMPLETED, t("completed"), matching.value.length - unfinished)}
      {tab("all", t("all"), matching.value.length)}
      {PHASES.filter((phase) => counts.get(phase) || filter.value.state === phase).map((phase) => tab(phase, phaseName(phase), counts.get(phase) ?? 0))}
    </div>
  );
}

const Text = ({ name, label }: { name: string; label: string }) => (
  <Field label={label}>
    <input value={place.value.query.get(name) ?? ""} onInput={(event) => setQuery({ [name]: event.currentTarget.value })} />
  </Field>
);

function Choice({ name, label, values }: { name: string; label: string; values: readonly string[] }) {
  const chosen = place.value.query.get(name) ?? "";
  const offered = chosen && !values.includes(chosen) ? [chosen, ...values] : values;
  return (
    <Field label={label}>
      <select value={chosen} onChange={(event) => setQuery({ [name]: event.currentTarget.value })}>
        <option value="">{t("all")}</option>
        {offered.map((value) => (
          <option key={value} value={value}>
            {value}
          </option>
        ))}
      </select>
    </Field>
  );
}

const CHOICES_MS = 5000;
const slot = computed(() => Math.floor(currentAt.value / CHOICES_MS));

// What the filters offer. Found in all jobs, and so not with each event.
function useChoices() {
  return useMemo(
    () => ({
      namespace: unique((job) => job.namespace),
      user: unique((job) => job.user),
      project: unique((job) => job.project),
      reason: unique((job) => job.reason),
    }),
    [slot.value, jobs.value.length],
  );
}

const unique = (of: (job: JobRow) => string): string[] => [...new Set(jobs.value.map(of))].filter(Boolean).sort(byName);
