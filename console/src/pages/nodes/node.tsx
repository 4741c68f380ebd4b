// Node: its devices with what they do, the jobs on it, and what is wrong with it.
import { SearchX } from "lucide";
import type { DeviceRow, JobRow, NodeRow } from "../../api/types";
import { ButtonLink } from "../../design/button";
import { Card, type Fact, Facts, StatTile } from "../../design/card";
import { Command } from "../../design/command";
import { Empty, Skeleton } from "../../design/empty";
import { MeterLine } from "../../design/meter";
import { PageHead } from "../../design/page";
import { type Column, Table } from "../../design/table";
import { age, gib, gpus, number, percent } from "../../format";
import { jobs, keyOf, nodes, sequence } from "../../live/store";
import { English, FINISHED, JobLink, PhaseBadge, requestOf, shortUser } from "../../parts/basics";
import { DeviceBadge, NodeBadge } from "../../parts/devices";
import { promisedOf, useOf } from "../../parts/use";
import { pathTo, place } from "../../router";
import { t } from "../../texts";
import { NodeCharts } from "../../time/charts";
import { Findings } from "../overview/findings";
import { modelsOf } from "./index";

export function NodePage() {
  const [name = ""] = place.value.rest;
  const node = nodes.value.find((each) => each.name === name);
  if (!node) return sequence() < 0 ? <Skeleton lines={8} /> : <Missing name={name} />;
  const use = useOf(node.devices);
  const here = jobs.value.filter((job) => !FINISHED.has(job.phase) && job.nodes.includes(name));
  return (
    <>
      <PageHead crumbs={<a href={pathTo("nodes")}>{t("nodes")}</a>} title={<>{name} <NodeBadge node={node} /></>} lead={node.message || node.stale ? <English text={node.message || node.stale} /> : undefined} actions={<ButtonLink href={`${pathTo("plan")}?search=${encodeURIComponent(name)}`}>{t("toPlan")}</ButtonLink>} />
      <div class="tiles">
        <StatTile label={t("promised")} value={gpus(use.promised)} of={t("ofGpus", use.total)} />
        <StatTile label={t("usedOfPromised")} value={use.promised ? percent(use.used / use.promised) : "–"} note={t("idleGpusNote", gpus(use.idle))} />
        <StatTile label={t("hottest")} value={extreme(node, (device) => device.temperatureCelsius, "°C")} />
        <StatTile label={t("power")} value={powerOf(node)} />
      </div>
      <div class="main-and-side">
        <div class="stack wide">
          <Card title={t("devices")} flush>
            <Table label={t("devices")} rows={node.devices} columns={DEVICES()} keyOf={(device) => device.uuid} />
          </Card>
          <NodeCharts node={name} />
          <Card title={t("jobsHere")} flush>
            {here.length ? <Table label={t("jobsHere")} rows={here} columns={JOBS()} keyOf={keyOf} /> : <Empty icon={SearchX} title={t("noJobsHere")} text={t("noJobsHereText")} />}
          </Card>
          <Command lines={[`dovetail doctor ${name}`, `kubectl get gpunode ${name} -o yaml`]} />
        </div>
        <div class="stack wide side">
          <Card title={t("about")}>
            <Facts facts={factsOf(node)} />
          </Card>
          <Card title={t("wrong")} flush>
            <Findings node={name} />
          </Card>
        </div>
      </div>
    </>
  );
}

const Missing = ({ name }: { name: string }) => (
  <Empty page icon={SearchX} title={t("noNodeTitle")} text={t("noNode", name)} actions={<ButtonLink href={pathTo("nodes")}>{t("toNodes")}</ButtonLink>} />
);

function extreme(node: NodeRow, of: (device: DeviceRow) => number | null, unit: string): string {
  const known = node.devices.map(of).filter((each) => each !== null);
  return known.length ? `${Math.max(...known)} ${unit}` : "–";
}

function powerOf(node: NodeRow): string {
  const known = node.devices.map((device) => device.powerWatts).filter((each) => each !== null);
  return known.length ? `${known.reduce((sum, each) => sum + each, 0)} W` : "–";
}

function factsOf(node: NodeRow): Fact[] {
  const facts: Fact[] = [[t("model"), modelsOf(node)]];
  if (node.cpus !== null && node.hostMemoryMiB !== null) facts.push([t("host"), t("hostOf", number(node.cpus), gib(node.hostMemoryMiB))]);
  if (node.pool) facts.push([t("pool"), node.pool]);
  if (node.rack) facts.push([t("rack"), node.rack]);
  if (node.driverVersion) facts.push([t("driver"), node.driverVersion]);
  if (node.runtimeVersion) facts.push([t("runtime"), node.runtimeVersion]);
  facts.push([t("report"), age(node.observedAt)]);
  return facts;
}

const DEVICES = (): Column<DeviceRow>[] => [
  { id: "index", title: t("device"), cell: (device) => <a class="open" href={`${pathTo("map")}?device=${encodeURIComponent(`${device.node}:${device.index}`)}`}>{device.index} {device.model}</a> },
  { id: "state", title: t("state"), cell: (device) => <DeviceBadge device={device} /> },
  { id: "promised", title: t("promised"), cell: (device) => <MeterLine part={promisedOf(device)} label={percent(promisedOf(device))} text={percent(promisedOf(device))} /> },
  { id: "load", title: t("load"), cell: (device) => (device.utilization === null ? "–" : <MeterLine part={device.utilization} label={percent(device.utilization)} text={percent(device.utilization)} tone="good" />) },
  { id: "memory", title: t("memory"), cell: memoryOf },
  { id: "temperature", title: t("temperature"), number: true, cell: (device) => (device.temperatureCelsius === null ? "–" : `${device.temperatureCelsius} °C`) },
  { id: "power", title: t("power"), number: true, cell: (device) => (device.powerWatts === null ? "–" : `${device.powerWatts} W`) },
];

function memoryOf(device: DeviceRow) {
  if (device.usedMiB === null) return gib(device.memoryMiB);
  const text = t("usedOf", gib(device.usedMiB), gib(device.memoryMiB));
  return <MeterLine part={device.usedMiB / Math.max(1, device.memoryMiB)} label={text} text={text} tone="info" />;
}

const JOBS = (): Column<JobRow>[] => [
  { id: "job", title: t("job"), cell: (job) => <JobLink job={job} /> },
  { id: "state", title: t("state"), cell: (job) => <PhaseBadge phase={job.phase} /> },
  { id: "user", title: t("user"), cell: (job) => shortUser(job.user) },
  { id: "request", title: t("request"), cell: requestOf },
  { id: "started", title: t("started"), cell: (job) => age(job.startedAt) },
];
