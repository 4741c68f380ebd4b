// Overview: what is used, promised and idle now, my jobs, who waits longest, what starts next, and what is wrong.
import { CircleCheck, ListOrdered, Plus } from "lucide";
import type { JobRow } from "../../api/types";
import { ButtonLink } from "../../design/button";
import { Card, StatTile } from "../../design/card";
import { Command } from "../../design/command";
import { Empty } from "../../design/empty";
import { Meter, PartsBar } from "../../design/meter";
import { PageHead } from "../../design/page";
import { Table } from "../../design/table";
import { duration, gpus, percent, secondsSince } from "../../format";
import { jobs, keyOf, me, nodes } from "../../live/store";
import { called, ExpectedStart, FINISHED, JobLink, NodeLinks, PhaseBadge, requestOf, shortUser, WAITING } from "../../parts/basics";
import { useOf } from "../../parts/use";
import { messageOf } from "../../reasons";
import { pathTo } from "../../router";
import { t } from "../../texts";
import { ClusterCharts } from "../../time/charts";
import { Findings } from "./findings";
import { ThisMachine } from "./machine";
import { chosenNamespace, Models } from "./models";

const SHOWN = 6;

export function OverviewPage() {
  return (
    <>
      <PageHead title={t("overview")} />
      <ThisMachine />
      <Cluster />
      <ClusterCharts />
      <div class="halves">
        <OwnJobs />
        <NextUp />
        <LongestWaits />
        <Card title={t("wrong")} flush>
          <Findings />
        </Card>
        <Card title={t("freeByModel")} note={t("largestHow", chosenNamespace())} flush>
          <Models />
        </Card>
        <Reasons />
      </div>
      <Command lines={["gqueue", "ginfo", "dovetail doctor"]} />
    </>
  );
}

const waitingJobs = (): JobRow[] => jobs.value.filter((job) => job.phase === "Queued");

function Cluster() {
  const use = useOf(nodes.value.flatMap((node) => node.devices));
  const waiting = waitingJobs();
  const oldest = byAge(waiting)[0];
  const asked = waiting.reduce((sum, job) => sum + job.gpus, 0);
  return (
    <>
      <div class="tiles">
        <StatTile label={t("promised")} value={gpus(use.promised)} of={t("ofGpus", use.total)} href={pathTo("map")}>
          <Meter part={use.total ? use.promised / use.total : 0} label={percent(use.total ? use.promised / use.total : 0)} />
        </StatTile>
        <StatTile label={t("usedOfPromised")} value={use.promised ? percent(use.used / use.promised) : "–"} note={t("idleGpusNote", gpus(use.idle))} href={pathTo("waste")} />
        <StatTile label={t("freeNow")} value={gpus(use.free)} of={t("gpus")} note={use.closed > 0 ? t("closedNote", gpus(use.closed)) : t("noneClosed")} href={`${pathTo("map")}?state=free`} />
        <StatTile label={t("waitingJobs")} value={waiting.length} note={t("gpusAsked", asked)} href={`${pathTo("jobs")}?state=Queued`} />
        <StatTile label={t("longestWait")} value={oldest ? duration(secondsSince(oldest.submittedAt)) : "–"} note={oldest ? called(oldest) : t("nothingWaits")} {...(oldest ? { href: pathTo("job", oldest.namespace, oldest.name) } : {})} />
      </div>
      <Card title={t("clusterNow")}>
        <PartsBar
          label={t("clusterNow")}
          parts={[
            { label: t("partUsed"), value: use.used, text: gpus(use.used), tone: "good" },
            { label: t("partIdle"), value: use.idle, text: gpus(use.idle), tone: "warn" },
            { label: t("partUnknown"), value: use.unknown, text: gpus(use.unknown), tone: "info" },
            { label: t("partFree"), value: use.free, text: gpus(use.free), tone: "empty" },
            { label: t("partClosed"), value: use.closed, text: gpus(use.closed), tone: "plain" },
          ]}
        />
      </Card>
    </>
  );
}

const byAge = (list: readonly JobRow[]): JobRow[] => [...list].sort((a, b) => (a.submittedAt < b.submittedAt ? -1 : 1));

function OwnJobs() {
  const user = me.value?.username ?? "";
  const all = jobs.value.filter((job) => job.user === user);
  const own = all.filter((job) => !FINISHED.has(job.phase)).sort(byState);
  const link = `${pathTo("jobs")}?user=${encodeURIComponent(user)}`;
  return (
    <Card title={t("myJobs")} flush actions={all.length > 0 && <a href={own.length ? link : `${link}&state=all`}>{t("allOwnJobs", own.length || all.length)}</a>}>
      {own.length ? (
        <JobList jobs={own.slice(0, SHOWN)} />
      ) : (
        <Empty icon={ListOrdered} title={t("noOwnJobs")} text={t("noOwnJobsText", shortUser(user))} actions={<ButtonLink icon={Plus} href={pathTo("submit")}>{t("newJob")}</ButtonLink>} />
      )}
    </Card>
  );
}

// Jobs without an estimate come last, in the order of the queue.
function NextUp() {
  const waiting = waitingJobs().sort(byStart).slice(0, SHOWN);
  return (
    <Card title={t("nextUp")} flush actions={<a href={pathTo("plan")}>{t("toPlan")}</a>}>
      {waiting.length ? <JobList jobs={waiting} /> : <NothingWaits />}
    </Card>
  );
}

function LongestWaits() {
  const waiting = byAge(waitingJobs()).slice(0, SHOWN);
  return (
    <Card title={t("waitsLongest")} flush>
      {waiting.length ? <JobList jobs={waiting} end={(job) => duration(secondsSince(job.submittedAt))} /> : <NothingWaits />}
    </Card>
  );
}

const NothingWaits = () => <Empty icon={CircleCheck} title={t("nothingWaits")} text={t("nothingWaitsText")} />;

const startOf = (job: JobRow) => (WAITING.has(job.phase) ? <ExpectedStart job={job} /> : requestOf(job));

const JobList = ({ jobs: list, end = startOf }: { jobs: readonly JobRow[]; end?: (job: JobRow) => preact.ComponentChildren }) => (
  <ul class="list">
    {list.map((job) => (
      <li key={keyOf(job)}>
        <span class="grow clip">
          <JobLink job={job} />
        </span>
        <PhaseBadge phase={job.phase} />
        <span class="end">{end(job)}</span>
        {(job.message || job.nodes.length > 0) && <span class="below clip">{job.phase === "Running" ? <NodeLinks names={job.nodes} /> : messageOf(job)}</span>}
      </li>
    ))}
  </ul>
);

const byState = (a: JobRow, b: JobRow): number =>
  Number(WAITING.has(b.phase)) - Number(WAITING.has(a.phase)) || (a.position ?? 1e9) - (b.position ?? 1e9) || (b.number ?? 0) - (a.number ?? 0);

const byStart = (a: JobRow, b: JobRow): number => {
  const [first, second] = [a.estimatedStart ?? "~", b.estimatedStart ?? "~"];
  return first === second ? byState(a, b) : first < second ? -1 : 1;
};

function Reasons() {
  const found = new Map<string, { reason: string; jobs: number; gpus: number }>();
  for (const job of jobs.value) {
    if (!WAITING.has(job.phase)) continue;
    const reason = job.reason || job.phase;
    const entry = found.get(reason) ?? { reason, jobs: 0, gpus: 0 };
    found.set(reason, { reason, jobs: entry.jobs + 1, gpus: entry.gpus + job.gpus });
  }
  const rows = [...found.values()].sort((a, b) => b.jobs - a.jobs);
  return (
    <Card title={t("waitingByReason")} flush>
      {rows.length === 0 ? (
        <NothingWaits />
      ) : (
        <Table
          label={t("waitingByReason")}
          rows={rows}
          keyOf={(row) => row.reason}
          columns={[
            { id: "reason", title: t("reason"), cell: (row) => <a class="open" href={`${pathTo("jobs")}?reason=${encodeURIComponent(row.reason)}`}>{row.reason}</a> },
            { id: "jobs", title: t("jobsCount"), number: true, cell: (row) => row.jobs },
            { id: "gpus", title: t("gpus"), number: true, cell: (row) => row.gpus },
          ]}
        />
      )}
    </Card>
  );
}
