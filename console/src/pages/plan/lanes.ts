// The rows of the Gantt chart: advance reservations, waiting jobs, nodes with their devices. Pure.
import type { HistoryRecord, JobRow, NodeRow, PlanPage, PlanRow } from "../../api/types";
import { keyOf } from "../../live/store";
import { pathTo } from "../../router";
import { t, type Text } from "../../texts";

// past and running hold devices. planned and band are starts that are expected, kept is room for a job, gap what a
// backfilled job leaves of the gap that it fills. drain takes no new work, window is an advance reservation.
export type Kind = "past" | "running" | "planned" | "band" | "kept" | "gap" | "drain" | "window" | "other";

export interface Bar {
  kind: Kind;
  // Milliseconds since the epoch; an open bar has no known end.
  from: number;
  to: number;
  open: boolean;
  text: string;
  // Composed when the bar is drawn, which most bars of a large cluster are not.
  title: () => string;
  href: string;
}

export interface Lane {
  key: string;
  kind: "title" | "window" | "job" | "node" | "device";
  title: string;
  bars: readonly Bar[];
  // Of a node: whether its devices follow, and the bars of each of them.
  open: boolean;
  devices: readonly (readonly Bar[])[];
}

export interface Sources {
  jobs: readonly JobRow[];
  nodes: readonly NodeRow[];
  plan: PlanPage;
  history: readonly HistoryRecord[];
  from: number;
  now: number;
  to: number;
}

type Named = { namespace: string; name: string; number: number | null };
const called = (job: Named | null): string => (job ? `${job.number ?? ""} ${job.name}`.trim() : t("anotherTenant"));
const linkTo = (job: Named | null): string => (job ? pathTo("job", job.namespace, job.name) : "");

export function lanesOf(sources: Sources, search: string, isOpen: (node: string) => boolean): Lane[] {
  const held = heldBars(sources);
  const atNodes = nodeBars(sources);
  const fits = (text: string) => !search || text.toLowerCase().includes(search);
  const lanes = [...windowLanes(sources), ...jobLanes(sources).filter((lane) => fits(lane.title))];
  for (const node of sources.nodes) {
    const devices = node.devices.map((device) => held.get(`${node.name}:${device.index}`) ?? []);
    if (!fits(node.name) && !devices.some((bars) => bars.some((bar) => fits(bar.text)))) continue;
    const open = isOpen(node.name);
    lanes.push({ key: node.name, kind: "node", title: node.name, bars: atNodes.get(node.name) ?? [], open, devices });
    if (!open) continue;
    node.devices.forEach((device, index) => {
      lanes.push(lane(`${node.name}:${device.index}`, "device", `${device.index} ${device.model}`, devices[index] ?? []));
    });
  }
  return lanes;
}

const lane = (key: string, kind: Lane["kind"], title: string, bars: readonly Bar[]): Lane => ({ key, kind, title, bars, open: false, devices: [] });

function windowLanes({ plan, from, to }: Sources): Lane[] {
  const seen = plan.windows.filter((each) => Date.parse(each.end) > from && Date.parse(each.start) < to);
  const lanes = seen.map((each, index) => {
    const text = t("planWindow", each.gpus, each.pool ?? t("all"));
    const title = each.name ? `${each.name} (${each.quota})` : t("anotherTenant");
    const bar: Bar = { kind: "window", from: Date.parse(each.start), to: Date.parse(each.end), open: false, text, title: () => `${title}: ${text}`, href: "" };
    return lane(`window ${index}`, "window", title, [bar]);
  });
  return lanes.length ? [lane("windows", "title", t("planWindows"), []), ...lanes] : [];
}

// Waiting jobs with an estimated start: a band between its bounds, and the run until its limit.
function jobLanes({ jobs, to }: Sources): Lane[] {
  const waiting = jobs.filter((job) => job.estimatedStart && !job.startedAt && job.completedAt === null);
  waiting.sort((a, b) => (a.position ?? 1e9) - (b.position ?? 1e9));
  const lanes = waiting.map((job) => {
    const start = Date.parse(job.estimatedStart as string);
    const bars: Bar[] = [];
    if (job.earliest && job.latest) {
      bars.push({ kind: "band", from: Date.parse(job.earliest), to: Date.parse(job.latest), open: false, text: "", title: () => t("planBand", called(job)), href: "" });
    }
    bars.push(ofJob(job, "planned", start, job.endsBy, to));
    return lane(keyOf(job), "job", called(job), bars);
  });
  return lanes.length ? [lane("jobs", "title", t("planStarts"), []), ...lanes, lane("nodes", "title", t("nodes"), [])] : lanes;
}

const ofJob = (job: JobRow, kind: Kind, from: number, end: string | null, horizon: number): Bar => ({
  kind,
  from,
  to: end ? Date.parse(end) : horizon,
  open: !end,
  text: called(job),
  title: () => `${called(job)}, ${job.user}, ${job.request}: ${end ? t("endsBy") : t("noLimit")}`,
  href: linkTo(job),
});

// What each device holds or held, by `node:index`.
function heldBars({ jobs, nodes, plan, history, from, now, to }: Sources): Map<string, Bar[]> {
  const found = new Map<string, Bar[]>();
  const add = (device: string, bar: Bar) => {
    const bars = found.get(device);
    if (bars) bars.push(bar);
    else found.set(device, [bar]);
  };
  const fills = new Map(plan.items.filter((row) => row.fills).map((row) => [keyOf(row), row]));
  const known = new Set<string>();
  for (const job of jobs) {
    if (!job.startedAt || !job.devices.length) continue;
    const start = Date.parse(job.startedAt);
    const end = job.completedAt ? Date.parse(job.completedAt) : 0;
    known.add(job.uid);
    if (end && end < from) continue;
    const row = fills.get(keyOf(job));
    const bar = end
      ? { ...ofJob(job, "past", start, job.completedAt, to), title: () => t("planPast", called(job), job.user, t(`phase${job.phase}` as Text)) }
      : { ...ofJob(job, "running", start, job.endsBy, to), ...(row ? backfilled(job, row) : {}) };
    for (const device of job.devices) {
      add(`${device.node}:${device.index}`, bar);
      if (row?.fills && bar.to < Date.parse(row.fills.until)) {
        add(`${device.node}:${device.index}`, { kind: "gap", from: bar.to, to: Date.parse(row.fills.until), open: false, text: "", title: bar.title, href: "" });
      }
    }
  }
  for (const node of nodes) {
    for (const device of node.devices) {
      if (!device.others) continue;
      const share = device.others.shareMilli / 1000;
      add(`${node.name}:${device.index}`, { kind: "other", from: now, to, open: true, text: t("anotherTenant"), title: () => t("planOther", share), href: "" });
    }
  }
  addHistory(add, { nodes, history, known });
  return found;
}

const backfilled = (job: JobRow, row: PlanRow): Partial<Bar> => ({
  text: `↷ ${called(job)}`,
  title: () => t("planFills", called(job), called(row.fills?.job ?? null)),
});

interface Past {
  nodes: readonly NodeRow[];
  history: readonly HistoryRecord[];
  known: ReadonlySet<string>;
}

function addHistory(add: (device: string, bar: Bar) => void, { nodes, history, known }: Past): void {
  const places = new Map(nodes.flatMap((node) => node.devices.map((device) => [device.uuid, `${node.name}:${device.index}`] as const)));
  for (const record of history) {
    if (known.has(record.uid) || !record.started || !record.ended) continue;
    const named = { namespace: record.namespace, name: record.name, number: record.number ?? null };
    const title = () => t("planPast", called(named), record.user ?? "", t(`phase${record.phase}` as Text));
    const bar: Bar = { kind: "past", from: Date.parse(record.started), to: Date.parse(record.ended), open: false, text: called(named), title, href: "" };
    for (const uuid of record.devices ?? []) {
      const device = places.get(uuid);
      if (device) add(device, bar);
    }
  }
}

// What is planned, kept or drained on a node: the queue plans nodes, and devices are chosen later.
function nodeBars({ plan, jobs, nodes, now, to }: Sources): Map<string, Bar[]> {
  const found = new Map<string, Bar[]>();
  const add = (node: string, bar: Bar) => found.set(node, [...(found.get(node) ?? []), bar]);
  const ends = new Map(jobs.map((job) => [keyOf(job), job.endsBy]));
  for (const room of plan.kept) {
    const at = Date.parse(room.at);
    const name = called(room.job);
    if (room.keeps.length) {
      const title = t("planKept", room.keeps.join(", "), name);
      add(room.node, { kind: "kept", from: now, to: at, open: false, text: title, title: () => title, href: linkTo(room.job) });
    }
    const end = room.job ? ends.get(keyOf(room.job)) : null;
    const title = () => t("planWorkers", name, room.workers);
    add(room.node, { kind: "planned", from: at, to: end ? Math.max(at, Date.parse(end)) : to, open: !end, text: name, title, href: linkTo(room.job) });
  }
  for (const row of plan.items) {
    if (row.phase !== "Starting") continue;
    for (const planned of row.planned) {
      const title = () => t("planWorkers", called(row), planned.workers);
      add(planned.node, { kind: "planned", from: Date.parse(row.startsAt), to: row.endsBy ? Date.parse(row.endsBy) : to, open: !row.endsBy, text: called(row), title, href: linkTo(row) });
    }
  }
  const there = new Set(nodes.map((node) => node.name));
  for (const drain of plan.drains) {
    if (!there.has(drain.node)) continue;
    const where = drain.index === null ? drain.node : `${drain.node}:${drain.index}`;
    const title = t(drain.restarts ? "planDrainRestarts" : "planDrain", where, drain.why);
    add(drain.node, { kind: "drain", from: now, to, open: true, text: title, title: () => title, href: "" });
  }
  return found;
}
