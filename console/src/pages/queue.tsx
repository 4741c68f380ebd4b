// Queue: all jobs as a table, with gqueue's filters.
import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { JobRow, Phase } from "../api/types";
import { age, quoted } from "../format";
import { byName, currentAt, jobs, keyOf } from "../live/store";
import { Command, ExpectedStart, Field, FINISHED, JobLink, PhaseMark, phaseName } from "../parts/basics";
import { type Column, VirtualTable } from "../parts/virtual_table";
import { language } from "../preferences";
import { place, setQuery } from "../router";
import { t } from "../texts";

// gqueue's short names of states.
const SHORT: Record<Phase, string> = {
  Queued: "PD", Held: "H", Starting: "PD", Running: "R", Suspended: "H",
  Succeeded: "CD", Failed: "F", Cancelled: "CA", TimedOut: "TO", Preempted: "PR",
};
const UNFINISHED = "unfinished";
const COMPLETED = "completed";
const PHASES = Object.keys(SHORT) as Phase[];

interface Filter {
  state: string;
  namespace: string;
  user: string;
  project: string;
  reason: string;
  names: string;
  ids: string;
  search: string;
  sort: string;
}

const filter = computed<Filter>(() => {
  const { query } = place.value;
  const of = (name: string) => query.get(name) ?? "";
  return {
    state: of("state") || UNFINISHED,
    namespace: of("namespace"),
    user: of("user"),
    project: of("project"),
    reason: of("reason"),
    names: of("names"),
    ids: of("jobs"),
    search: of("search").toLowerCase(),
    sort: of("sort") || "position",
  };
});

const ORDERS: Record<string, (a: JobRow, b: JobRow) => number> = {
  // What waits in its order, then what runs, then what has ended; the newest first.
  position: (a, b) => rank(a) - rank(b) || (a.position ?? 1e9) - (b.position ?? 1e9) || byTime(b.submittedAt, a.submittedAt),
  name: (a, b) => byName(a.name, b.name),
  number: (a, b) => (a.number ?? 0) - (b.number ?? 0),
  namespace: (a, b) => byName(a.namespace, b.namespace),
  user: (a, b) => byName(a.user, b.user),
  state: (a, b) => byName(a.phase, b.phase),
  gpus: (a, b) => a.gpus - b.gpus,
  priority: (a, b) => a.priority - b.priority,
  start: (a, b) => byTime(a.estimatedStart ?? "~", b.estimatedStart ?? "~"),
  submitted: (a, b) => byTime(a.submittedAt, b.submittedAt),
  why: (a, b) => byName(a.reason, b.reason),
};

// Times as the API writes them sort as text, without a locale's rules: with 10,000 jobs those took most of an update.
const byTime = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const rank = (job: JobRow): number => (job.position !== null ? 0 : FINISHED.has(job.phase) ? 2 : 1);

// All but the state, so that the tabs count what they would show.
const matching = computed(() => {
  const wanted = filter.value;
  const names = new Set(words(wanted.names));
  const inIds = idsOf(wanted.ids);
  return jobs.value.filter(
    (job) =>
      (!names.size || names.has(job.name)) &&
      (!inIds || inIds(job)) &&
      (!wanted.namespace || job.namespace === wanted.namespace) &&
      (!wanted.user || job.user === wanted.user) &&
      (!wanted.project || job.project === wanted.project) &&
      (!wanted.reason || (job.reason || job.phase) === wanted.reason) &&
      (!wanted.search || textOf(job).includes(wanted.search)),
  );
});

const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

// As with gqueue -j: numbers, ranges and names, such as 1,3-5 or train. Null for none.
function idsOf(text: string): ((job: JobRow) => boolean) | null {
  const wanted = words(text);
  if (!wanted.length) return null;
  const ranges = wanted.map((word) => /^(\d+)(?:-(\d+))?$/.exec(word)).filter((found) => found !== null);
  return (job) =>
    wanted.includes(job.name) ||
    ranges.some(([, first, last]) => job.number !== null && job.number >= Number(first) && job.number <= Number(last ?? first));
}

const textOf = (job: JobRow): string =>
  `${job.number} ${job.namespace}/${job.name} ${job.user} ${job.project} ${job.request} ${job.message} ${job.nodes.join(" ")}`.toLowerCase();

const inState = (job: JobRow, state: string): boolean =>
  state === "all" || (state === UNFINISHED || state === COMPLETED ? FINISHED.has(job.phase) === (state === COMPLETED) : job.phase === state);

const shown = computed(() => {
  const { state, sort } = filter.value;
  const order = ORDERS[sort.replace(/^-/, "")] ?? ORDERS["position"];
  const rows = matching.value.filter((job) => inState(job, state)).sort(order);
  return sort.startsWith("-") ? rows.reverse() : rows;
});

const COLUMNS = (): Column<JobRow>[] => [
  { id: "position", title: t("position"), number: true, cell: (job) => job.position ?? "" },
  { id: "number", title: t("number"), number: true, cell: (job) => job.number ?? "" },
  { id: "name", title: t("name"), cell: (job) => <JobLink job={{ ...job, number: null }} /> },
  { id: "state", title: t("state"), cell: (job) => <PhaseMark phase={job.phase} /> },
  { id: "gpus", title: t("request"), cell: (job) => (job.workers > 1 ? `${job.workers} × ${job.request}` : job.request) },
  { id: "start", title: t("expectedStart"), cell: (job) => <ExpectedStart job={job} /> },
  { id: "why", title: t("why"), cell: (job) => <span class="why">{job.message || job.nodes.join(", ")}</span> },
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

function asCommand(): string {
  const { state, namespace, user, project, names, ids } = filter.value;
  const line = ["gqueue", "-u", quoted(user || "all")];
  if (state === "all") line.push("-a");
  else if (state === COMPLETED) line.push("-c");
  else if (state !== UNFINISHED) line.push("-s", SHORT[state as Phase] ?? state);
  if (ids) line.push("-j", quoted(words(ids).join(",")));
  if (names) line.push("-N", quoted(words(names).join(",")));
  if (project) line.push("-P", quoted(project));
  if (namespace) line.push("--namespace", quoted(namespace));
  return line.join(" ");
}
