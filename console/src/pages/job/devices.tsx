// The devices of a job with what they do now.
import type { DeviceRow, JobDevice, JobRow } from "../../api/types";
import { Card } from "../../design/card";
import { MeterLine } from "../../design/meter";
import { type Column, Table } from "../../design/table";
import { age, gib, percent } from "../../format";
import { nodes } from "../../live/store";
import { NodeLink } from "../../parts/basics";
import { t } from "../../texts";

interface Held {
  held: JobDevice;
  device: DeviceRow | undefined;
  observedAt: string | null;
}

const COLUMNS = (now: boolean): Column<Held>[] => [
  { id: "device", title: t("device"), cell: ({ held }) => <span><NodeLink name={held.node} />:{held.index}</span> },
  { id: "worker", title: t("worker"), number: true, cell: ({ held }) => held.worker },
  { id: "model", title: t("model"), cell: ({ device }) => device?.model ?? "–" },
  { id: "share", title: t("share"), number: true, cell: ({ held }) => held.shareMilli / 1000 },
  ...(now
    ? [
        { id: "memory", title: t("memory"), cell: memoryOf },
        { id: "load", title: t("load"), cell: loadOf },
        { id: "as-of", title: t("measured"), cell: ({ observedAt }: Held) => <span class="muted">{age(observedAt)}</span> },
      ]
    : [{ id: "memory", title: t("promised"), number: true, cell: ({ held }: Held) => gib(held.memoryMiB) }]),
];

function memoryOf({ held, device }: Held) {
  const used = device?.usedMiB;
  if (used === null || used === undefined) return gib(held.memoryMiB);
  const text = t("usedOf", gib(used), gib(held.memoryMiB));
  return <MeterLine part={used / Math.max(1, held.memoryMiB)} label={text} text={text} tone="info" />;
}

function loadOf({ device }: Held) {
  const load = device?.utilization;
  return load === null || load === undefined ? "–" : <MeterLine part={load} label={percent(load)} text={percent(load)} tone="good" />;
}

export function Devices({ job }: { job: JobRow }) {
  if (!job.devices.length) return null;
  const rows = job.devices.map((held): Held => {
    const node = nodes.value.find((each) => each.name === held.node);
    const device = node?.devices.find((each) => each.uuid === held.uuid);
    return { held, device, observedAt: device?.measuredAt ?? node?.observedAt ?? null };
  });
  const now = job.completedAt === null;
  return (
    <Card title={t("devices")} flush>
      <Table label={t("devices")} rows={rows} columns={COLUMNS(now)} keyOf={(row) => `${row.held.uuid} ${row.held.worker}`} />
    </Card>
  );
}
