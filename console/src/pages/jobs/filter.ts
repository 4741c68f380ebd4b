// Which jobs the page Jobs shows, in which order, and the same as a line of gqueue.
import { computed } from "@preact/signals";
import type { JobRow, Phase } from "../../api/types";
import { quoted } from "../../format";
import { byName, jobs } from "../../live/store";
import { FINISHED } from "../../parts/basics";
import { place } from "../../router";

// gqueue's short names of states.
const SHORT: Record<Phase, string> = {
  Queued: "PD", Held: "H", Starting: "PD", Running: "R", Suspended: "H",
  Succeeded: "CD", Failed: "F", Cancelled: "CA", TimedOut: "TO", Preempted: "PR",
};
export const UNFINISHED = "unfinished";
export const COMPLETED = "completed";
export const PHASES = Object.keys(SHORT) as Phase[];

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

export const filter = computed<Filter>(() => {
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
export const matching = computed(() => {
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

export const shown = computed(() => {
  const { state, sort } = filter.value;
  const order = ORDERS[sort.replace(/^-/, "")] ?? ORDERS["position"];
  const rows = matching.value.filter((job) => inState(job, state)).sort(order);
  return sort.startsWith("-") ? rows.reverse() : rows;
});

// The filters as a command line.
export function asCommand(): string {
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
