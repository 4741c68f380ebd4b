// The planned starts and the running jobs as a table.
import { CalendarX2 } from "lucide";
import { useMemo } from "preact/hooks";
import type { JobRow, PlanRow } from "../../api/types";
import { Empty } from "../../design/empty";
import { type Column, Table } from "../../design/table";
import { inTime, moment } from "../../format";
import { jobs, keyOf } from "../../live/store";
import { ExpectedStart, FINISHED, JobLink, PhaseBadge, requestOf } from "../../parts/basics";
import { t } from "../../texts";
import { redraw } from "./data";

const MOST_STARTS = 100;

export function Starts({ items, namespace }: { items: readonly PlanRow[]; namespace: string }) {
  const listed = useMemo(() => startsOf(namespace), [redraw.value, namespace]);
  const fills = useMemo(() => new Map(items.map((row) => [keyOf(row), row])), [items]);
  if (!listed.length) return <Empty icon={CalendarX2} title={t("planNone")} />;
  const rowOf = (job: JobRow) => fills.get(keyOf(job));
  return <Table label={t("planStarts")} rows={listed} keyOf={keyOf} columns={COLUMNS(rowOf)} />;
}

// Waiting jobs by their position, then those that run.
function startsOf(namespace: string): JobRow[] {
  const open = jobs.peek().filter((job) => !FINISHED.has(job.phase) && (job.startedAt ?? job.estimatedStart) && (!namespace || job.namespace === namespace));
  const waiting = open.filter((job) => !job.startedAt).sort((a, b) => (a.position ?? 1e9) - (b.position ?? 1e9));
  return [...waiting, ...open.filter((job) => job.startedAt)].slice(0, MOST_STARTS);
}

function COLUMNS(rowOf: (job: JobRow) => PlanRow | undefined): Column<JobRow>[] {
  const planned = (job: JobRow) => rowOf(job)?.planned.map((each) => `${each.node} × ${each.workers}`).join(", ");
  return [
    { id: "job", title: t("job"), cell: (job) => <JobLink job={job} /> },
    { id: "state", title: t("state"), cell: (job) => <PhaseBadge phase={job.phase} /> },
    { id: "request", title: t("request"), cell: requestOf },
    { id: "start", title: t("expectedStart"), cell: (job) => (job.startedAt ? moment(job.startedAt) : <ExpectedStart job={job} />) },
    { id: "end", title: t("endsBy"), cell: (job) => endOf(job, rowOf(job)) },
    { id: "nodes", title: t("nodes"), cell: (job) => job.nodes.join(", ") || planned(job) || "–" },
    { id: "gap", title: t("planGap"), cell: (job) => gapOf(rowOf(job)) },
  ];
}

function endOf(job: JobRow, row: PlanRow | undefined): string {
  const end = job.endsBy ? inTime(job.endsBy) : t("noLimit");
  return row?.leavesAt ? `${end} (${t("planLeaves", inTime(row.leavesAt))})` : end;
}

function gapOf(row: PlanRow | undefined): string {
  const gap = row?.fills;
  if (!gap) return "–";
  return t("planGapBefore", gap.job ? `${gap.job.number ?? ""} ${gap.job.name}` : t("anotherTenant"), inTime(gap.until));
}
