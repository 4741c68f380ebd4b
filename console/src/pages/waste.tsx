// Waste: who holds GPUs that do little, by job, user, namespace or project; and what jobs should request instead.
import { CircleCheck, Leaf } from "lucide";
import { useSignal } from "@preact/signals";
import { usePolled } from "../api/polled";
import type { DeviceRow, JobDevice, JobRow, RightSizePage, RightSizeRow, TeamSavings } from "../api/types";
import { age, duration, gib, gpus, moment, number, percent } from "../format";
import { jobs, keyOf, nodes } from "../live/store";
import { Button } from "../design/button";
import { Card } from "../design/card";
import { Command } from "../design/command";
import { Empty, Skeleton } from "../design/empty";
import { Select } from "../design/field";
import { MeterLine } from "../design/meter";
import { PageHead } from "../design/page";
import { type Column, Table } from "../design/table";
import { English, JobLink, shortUser } from "../parts/basics";
import { pathTo, place, setQuery } from "../router";
import { t } from "../texts";
import { IDLE_DAYS, useIdleHours } from "./idle_hours";

// So many jobs are measured, and so many rows are there.
const MEASURED = 16;
const MOST = 200;
const BY = ["job", "user", "namespace", "project"] as const;

interface Use {
  name: string;
  job: JobRow | null;
  gpus: number;
  idle: number;
  // Idle GPU hours of a job that had always done what it does now. Those that may be first are measured.
  hours: number;
  promisedMiB: number;
  usedMiB: number;
  oldest: string | null;
}

export function WastePage() {
  const by = BY.find((each) => each === place.value.query.get("by")) ?? "job";
  const now = usesBy(by);
  const hours = useIdleHours(by, now.slice(0, MEASURED).flatMap((use) => use.job ?? []));
  const uses = byHours(now, hours);
  return (
    <>
      <PageHead title={t("waste")} lead={t("wasteHow")} />
      <Card
        title={t("holdersTitle")}
        note={by === "job" ? t("idleHoursOfJobs") : t("idleHoursOfOthers", IDLE_DAYS)}
        flush
        actions={
          <div class="short">
            <Select label={t("byWhom")} value={by} choices={BY.map((each) => [each, t(each)])} onChoose={(value) => setQuery({ by: value })} />
          </div>
        }
      >
        {uses.length === 0 ? <Empty icon={Leaf} title={t("holdsNothingIdle")} /> : <Uses uses={uses} by={by} hours={hours} />}
      </Card>
      <Card title={t("rightSizes")} note={t("rightSizesHow")} flush>
        <RightSizes />
      </Card>
      <Card title={t("idleHolders")} note={t("idleHow")} flush>
        <Idle />
      </Card>
      <Command lines={["dovetail top", "ginfo --by-job", 'curl -H "Authorization: Bearer $TOKEN" $URL/api/v3/right-sizes']} />
    </>
  );
}

function usesBy(by: (typeof BY)[number]): Use[] {
  const devices = new Map<string, { device: DeviceRow; observedAt: string | null }>();
  for (const node of nodes.value) for (const device of node.devices) devices.set(device.uuid, { device, observedAt: node.observedAt });
  const found = new Map<string, Use>();
  for (const job of jobs.value) {
    if (job.phase !== "Running") continue;
    const name = by === "job" ? keyOf(job) : job[by] || t("none");
    const use = found.get(name) ?? { name, job: by === "job" ? job : null, gpus: 0, idle: 0, hours: 0, promisedMiB: 0, usedMiB: 0, oldest: null };
    for (const held of job.devices) {
      const seen = devices.get(held.uuid);
      // What a device that cannot report does is not known.
      if (!seen || seen.device.utilization === null) continue;
      const share = held.shareMilli / 1000;
      use.gpus += share;
      // A device's load is that of all its tenants: what one of them does is at most this.
      use.idle += share * (1 - seen.device.utilization);
      use.promisedMiB += held.memoryMiB;
      use.usedMiB += usedBy(job, held, seen.device);
      if (seen.observedAt && (!use.oldest || seen.observedAt < use.oldest)) use.oldest = seen.observedAt;
    }
    if (use.gpus > 0) found.set(name, use);
  }
  const at = Date.now();
  for (const use of found.values()) if (use.job?.startedAt) use.hours = (use.idle * Math.max(0, at - Date.parse(use.job.startedAt))) / HOUR_MS;
  return [...found.values()].sort((a, b) => b.hours - a.hours || b.idle - a.idle).slice(0, MOST);
}

const HOUR_MS = 3_600_000;

// The most idle hours first, and of equal ones the most idle now.
function byHours(uses: readonly Use[], hours: ReadonlyMap<string, number>): Use[] {
  const of = (use: Use): number => hours.get(use.name) ?? use.hours;
  return [...uses].sort((a, b) => of(b) - of(a) || b.idle - a.idle);
}

// What the job's own processes use; of a device that attributes none, at most all that is used of it.
function usedBy(job: JobRow, held: JobDevice, device: DeviceRow): number {
  const own = device.tenants.filter((each) => each.namespace === job.namespace && each.job === job.number && each.usedMiB !== null);
  if (own.length) return own.reduce((sum, each) => sum + (each.usedMiB ?? 0), 0);
  return Math.min(held.memoryMiB, device.usedMiB ?? 0);
}

// The first rows fill a screen; the others come with a press.
const FIRST = 8;

function Uses({ uses, by, hours }: { uses: readonly Use[]; by: (typeof BY)[number]; hours: ReadonlyMap<string, number> }) {
  const hoursOf = (use: Use): string => {
    const known = hours.get(use.name);
    return known === undefined ? "–" : number(known);
  };
  const columns: Column<Use>[] = [
    { id: "name", title: t(by), cell: (use) => (use.job ? <JobLink job={use.job} /> : use.name) },
    { id: "gpus", title: t("gpus"), number: true, cell: (use) => gpus(use.gpus) },
    { id: "hours", title: t("idleGpuHours"), number: true, cell: (use) => <span class="strong">{hoursOf(use)}</span> },
    { id: "idle", title: t("idleGpus"), number: true, cell: (use) => gpus(use.idle) },
    { id: "load", title: t("meanLoad"), cell: (use) => <MeterLine part={loadOf(use)} label={percent(loadOf(use))} text={percent(loadOf(use))} tone="good" /> },
    { id: "memory", title: t("memory"), cell: (use) => <MeterLine part={use.usedMiB / Math.max(1, use.promisedMiB)} label={memoryOf(use)} text={memoryOf(use)} tone="info" /> },
    { id: "as-of", title: t("measured"), cell: (use) => <span class="muted">{age(use.oldest)}</span> },
  ];
  return <Shortened rows={uses} first={FIRST} draw={(rows) => <Table label={t("holdersTitle")} rows={rows} columns={columns} keyOf={(use) => use.name} />} />;
}

const loadOf = (use: Use): number => 1 - use.idle / use.gpus;
const memoryOf = (use: Use): string => t("usedOf", gib(use.usedMiB), gib(use.promisedMiB));

function Shortened<T>({ rows, first, draw }: { rows: readonly T[]; first: number; draw: (rows: readonly T[]) => preact.ComponentChildren }) {
  const all = useSignal(false);
  return (
    <>
      {draw(all.value ? rows : rows.slice(0, first))}
      {rows.length > first && !all.value && (
        <div class="padded">
          <Button small onClick={() => (all.value = true)}>{t("showMore", rows.length - first)}</Button>
        </div>
      )}
    </>
  );
}

// Jobs of which the idle policy has said that none of their devices works.
function Idle() {
  const idle = jobs.value.filter((job) => job.idle && job.phase === "Running");
  if (!idle.length) return <Empty icon={CircleCheck} title={t("noneIdle")} />;
  return (
    <ul class="list">
      {idle.map((job) => (
        <li key={keyOf(job)}>
          <span class="grow"><JobLink job={job} /></span>
          <span class="end">{shortUser(job.user)}, {t("ofGpus", job.gpus)}</span>
          <span class="below"><IdleSince said={job.idle} /></span>
        </li>
      ))}
    </ul>
  );
}

const TIME = /\d{4}-\d\d-\d\dT[\d:]{8}Z/;

function IdleSince({ said }: { said: string }) {
  const since = TIME.exec(said)?.[0];
  return since ? <>{t("noWorkSince", moment(since))}</> : <English text={said} />;
}

const SIZES_AGAIN_MS = 30_000;
const MOST_SIZES = 100;
const FIRST_TEAMS = 4;

// Those with a smaller request; of the others, why there is none is folded away.
function RightSizes() {
  const { found, problem } = usePolled<RightSizePage | null>(`/api/v3/right-sizes?limit=${MOST_SIZES}`, SIZES_AGAIN_MS, null);
  if (problem) return <p class="problem padded">{problem}</p>;
  if (!found) return <div class="padded"><Skeleton /></div>;
  const better = found.items.filter((row) => row.suggested);
  const others = found.items.filter((row) => !row.suggested);
  return (
    <>
      {found.teams.length > 0 && (
        <Shortened rows={found.teams} first={FIRST_TEAMS} draw={(rows) => <Table label={t("savedByTeam")} rows={rows} columns={TEAMS()} keyOf={(team) => `${team.namespace}/${team.project}`} />} />
      )}
      {better.length ? (
        <Shortened rows={better} first={FIRST} draw={(rows) => <Table label={t("rightSizes")} rows={rows} columns={SIZES()} keyOf={(row) => `${row.namespace}/${row.job}`} />} />
      ) : (
        <Empty icon={Leaf} title={found.items.length ? t("noBetterSizes") : t("noSizes")} />
      )}
      {others.length > 0 && (
        <details class="disclosure padded">
          <summary>{t("sizesWithout", others.length)}</summary>
          <Table label={t("sizesWithout", others.length)} rows={others} columns={SIZES()} keyOf={(row) => `${row.namespace}/${row.job}`} />
        </details>
      )}
      {found.total > found.items.length && <p class="note padded">{t("sizesShown", found.items.length, found.total)}</p>}
    </>
  );
}

const submitWith = (row: RightSizeRow): string =>
  `/console/submit?from=${encodeURIComponent(`${row.namespace}/${row.job}`)}&namespace=${encodeURIComponent(row.namespace)}&gpu=${encodeURIComponent(row.suggested)}`;

// Over the latest runs of their jobs; those that could save most come first.
const TEAMS = (): Column<TeamSavings>[] => [
  { id: "team", title: t("team"), cell: (team) => <a href={`${pathTo("jobs")}?namespace=${encodeURIComponent(team.namespace)}`}>{[team.namespace, team.project].filter(Boolean).join(" / ")}</a> },
  { id: "jobs", title: t("savableJobs"), number: true, cell: (team) => team.jobs },
  { id: "saved", title: t("savedGpus"), number: true, cell: (team) => gpus(team.savedGpus) },
  { id: "savable-hours", title: t("savableHours"), number: true, cell: (team) => <span class="strong">{number(team.savableHours)}</span> },
  { id: "saved-hours", title: t("savedHours"), number: true, cell: (team) => number(team.savedHours) },
];

const SIZES = (): Column<RightSizeRow>[] => [
  { id: "job", title: t("job"), cell: (row) => <JobLink job={{ namespace: row.namespace, name: row.job, number: row.number }} /> },
  { id: "user", title: t("user"), cell: (row) => shortUser(row.user) },
  { id: "request", title: t("request"), cell: (row) => row.request },
  { id: "size", title: t("rightSize"), cell: (row) => (row.suggested ? <a class="strong" href={submitWith(row)}>{row.suggested}</a> : "–") },
  { id: "saved", title: t("savedGpus"), number: true, cell: (row) => gpus(row.savedGpus) },
  { id: "savable-hours", title: t("savableHours"), number: true, cell: (row) => number(row.savableHours) },
  { id: "saved-hours", title: t("savedHours"), number: true, cell: (row) => number(row.savedHours) },
  { id: "peak", title: t("peak"), cell: (row) => (row.peakMiB ? t("usedOf", gib(row.peakMiB), gib(row.promisedMiB)) : "–") },
  { id: "load", title: t("meanUtilization"), number: true, cell: (row) => (row.meanUtilization === null ? "–" : percent(row.meanUtilization)) },
  { id: "measured", title: t("measuredOver"), cell: (row) => t("runsMeasured", row.runs, duration(row.deviceSeconds)) },
  { id: "basis", title: t("basis"), text: true, cell: (row) => <span class="muted"><English text={row.basis} /></span> },
];
