// Nodes: each with what its devices do, what is promised of them, and whether it takes work.
import { ServerOff } from "lucide";
import { useMemo } from "preact/hooks";
import type { NodeRow } from "../../api/types";
import { Card } from "../../design/card";
import { Command } from "../../design/command";
import { Empty } from "../../design/empty";
import { Search } from "../../design/field";
import { MeterLine } from "../../design/meter";
import { PageHead, Tabs } from "../../design/page";
import { age, gib, percent } from "../../format";
import { nodes } from "../../live/store";
import { NodeLink } from "../../parts/basics";
import { DeviceSquares, NodeBadge } from "../../parts/devices";
import { useOf } from "../../parts/use";
import { type VirtualColumn, VirtualTable } from "../../parts/virtual_table";
import { language } from "../../preferences";
import { place, setQuery, withQuery } from "../../router";
import { t } from "../../texts";

const sum = (values: readonly (number | null)[]): number => values.reduce<number>((all, each) => all + (each ?? 0), 0);
const mean = (values: readonly (number | null)[]): number | null => {
  const known = values.filter((each) => each !== null);
  return known.length ? sum(known) / known.length : null;
};
export const modelsOf = (node: NodeRow): string =>
  [...Map.groupBy(node.devices, (device) => device.model)].map(([model, list]) => `${list.length} × ${model}`).join(", ") || t("none");

const COLUMNS = (): VirtualColumn<NodeRow>[] => [
  { id: "node", title: t("node"), cell: (node) => <NodeLink name={node.name} /> },
  { id: "state", title: t("state"), cell: (node) => <NodeBadge node={node} /> },
  { id: "devices", title: t("devices"), cell: (node) => <DeviceSquares node={node} /> },
  { id: "models", title: t("model"), cell: modelsOf },
  {
    id: "promised",
    title: t("promised"),
    cell: (node) => {
      const use = useOf(node.devices);
      const text = t("freeOf", Math.round(use.promised * 10) / 10, use.total);
      return <MeterLine part={use.total ? use.promised / use.total : 0} label={text} text={text} />;
    },
  },
  {
    id: "load",
    title: t("load"),
    cell: (node) => {
      const load = mean(node.devices.map((device) => device.utilization));
      return load === null ? "–" : <MeterLine part={load} label={percent(load)} text={percent(load)} tone="good" />;
    },
  },
  {
    id: "memory",
    title: t("memory"),
    cell: (node) => {
      const whole = sum(node.devices.map((device) => device.memoryMiB));
      const used = sum(node.devices.map((device) => device.usedMiB));
      return <MeterLine part={whole ? used / whole : 0} label={t("usedOf", gib(used), gib(whole))} text={gib(used)} tone="info" />;
    },
  },
  { id: "report", title: t("report"), cell: (node) => <span class="muted">{age(node.observedAt)}</span> },
];

// A node in two lines, for a telephone.
const compact = (node: NodeRow) => (
  <div class="stack tight">
    <div class="row whole apart">
      <span class="clip">
        <NodeLink name={node.name} />
      </span>
      <NodeBadge node={node} />
    </div>
    <div class="row whole apart">
      <DeviceSquares node={node} />
      <span class="clip muted">{modelsOf(node)}</span>
    </div>
  </div>
);

const FILTERS = {
  all: () => true,
  free: (node: NodeRow) => node.devices.some((device) => device.available),
  closed: (node: NodeRow) => !node.takesWork || node.devices.some((device) => !device.takesWork),
} as const;

type Filter = keyof typeof FILTERS;

const textOf = (node: NodeRow): string => `${node.name} ${node.pool} ${node.rack} ${modelsOf(node)}`.toLowerCase();

export function NodesPage() {
  const { query } = place.value;
  const wanted = (query.get("show") ?? "all") in FILTERS ? ((query.get("show") ?? "all") as Filter) : "all";
  const search = (query.get("search") ?? "").toLowerCase();
  const found = nodes.value.filter((node) => !search || textOf(node).includes(search));
  const shown = found.filter(FILTERS[wanted]);
  const columns = useMemo(COLUMNS, [language.value]);
  return (
    <>
      <PageHead title={t("nodes")} />
      <Tabs
        label={t("state")}
        tabs={(Object.keys(FILTERS) as Filter[]).map((name) => ({
          href: withQuery({ show: name === "all" ? "" : name }),
          text: t(`nodes_${name}`),
          count: found.filter(FILTERS[name]).length,
          current: wanted === name,
        }))}
      />
      <div class="toolbar">
        <Search label={t("searchNodes")} value={query.get("search") ?? ""} onText={(text) => setQuery({ search: text })} />
      </div>
      <Card flush>
        {shown.length ? <VirtualTable label={t("nodes")} rows={shown} columns={columns} compact={compact} keyOf={(node) => node.name} /> : <Empty icon={ServerOff} title={t("noNodes")} text={nodes.value.length ? t("noNodesFilters") : t("noNodesText")} />}
      </Card>
      <Command lines={["ginfo", "kubectl get gpunodes"]} />
    </>
  );
}
