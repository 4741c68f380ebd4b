// The planned starts and the running jobs as a table.
import { useMemo } from "preact/hooks";
import type { JobRow, PlanRow } from "../../api/types";
import { inTime, moment } from "../../format";
import { jobs, keyOf } from "../../live/store";
import { ExpectedStart, FINISHED, JobLink, PhaseMark } from "../../parts/basics";
import { t } from "../../texts";
import { redraw } from "./data";

const MOST_STARTS = 100;

export function Starts({ items, namespace }: { items: readonly PlanRow[]; namespace: string }) {
  const listed = useMemo(() => startsOf(namespace), [redraw.value, namespace]);
  const fills = useMemo(() => new Map(items.map((row) => [keyOf(row), row])), [items]);
  if (!listed.length) return <p>{t("planNone")}</p>;
  return (
    <table>
      <thead>
        <tr>
          {[t("job"), t("state"), t("request"), t("expectedStart"), t("endsBy"), t("nodes"), t("planGap")].map((title) => (
            <th scope="col" key={title}>{title}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {listed.map((job) => (
          <StartRow key={keyOf(job)} job={job} row={fills.get(keyOf(job))} />
        ))}
      </tbody>
    </table>
  );
}

// Waiting jobs by their position, then those that run.
function startsOf(namespace: string): JobRow[] {
  const open = jobs.peek().filter((job) => !FINISHED.has(job.phase) && (job.startedAt ?? job.estimatedStart) && (!namespace || job.namespace === namespace));
  const waiting = open.filter((job) => !job.startedAt).sort((a, b) => (a.position ?? 1e9) - (b.position ?? 1e9));
  return [...waiting, ...open.filter((job) => job.startedAt)].slice(0, MOST_STARTS);
}

function StartRow({ job, row }: { job: JobRow; row: PlanRow | undefined }) {
  const gap = row?.fills;
  const planned = row?.planned.map((each) => `${each.node} × ${each.workers}`).join(", ");
  return (
    <tr>
      <td><JobLink job={job} /></td>
      <td><PhaseMark phase={job.phase} /></td>
      <td>{job.workers > 1 ? `${job.workers} × ${job.request}` : job.request}</td>
      <td>{job.startedAt ? moment(job.startedAt) : <ExpectedStart job={job} />}</td>
      <td>{job.endsBy ? inTime(job.endsBy) : t("noLimit")}{row?.leavesAt && ` (${t("planLeaves", inTime(row.leavesAt))})`}</td>
      <td>{job.nodes.join(", ") || planned}</td>
      <td>{gap && t("planGapBefore", gap.job ? `${gap.job.number ?? ""} ${gap.job.name}` : t("anotherTenant"), inTime(gap.until))}</td>
    </tr>
  );
}
