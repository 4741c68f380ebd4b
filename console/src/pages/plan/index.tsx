// Plan: past, present and planned use of each node and device, and the expected starts of waiting jobs.
import { CalendarX2 } from "lucide";
import { useMemo } from "preact/hooks";
import type { Read } from "../../api/polled";
import { duration } from "../../format";
import { jobs, namespaces, nodes, sequence } from "../../live/store";
import { Card } from "../../design/card";
import { Command } from "../../design/command";
import { Empty } from "../../design/empty";
import { Search, Select } from "../../design/field";
import { PageHead } from "../../design/page";
import { Later } from "../../parts/basics";
import { place, setQuery } from "../../router";
import { t } from "../../texts";
import { Chart } from "./chart";
import { redraw, useHistory, usePlan } from "./data";
import { type Lane, lanesOf } from "./lanes";
import { Moves } from "./moves";
import { Starts } from "./starts";

const HOURS = ["1", "2", "8", "24", "72", "336"];
// With more nodes, each shows its devices once it is opened.
const FEW_NODES = 12;

export function PlanPage() {
  const { query } = place.value;
  const hours = Number(query.get("hours") ?? "8") || 8;
  const search = (query.get("search") ?? "").toLowerCase();
  const namespace = query.get("namespace") ?? "";
  const plan = usePlan();
  const history = useHistory(namespace ? [namespace] : namespaces.value, hours / 2);
  const lanes = useLanes({ hours, search, namespace, plan: plan.found, history: history.found });
  return (
    <>
      <PageHead title={t("plan")} lead={t("planHow")} />
      <Filters hours={hours} namespace={namespace} />
      {[plan.problem, history.problem].filter(Boolean).map((text) => (
        <p key={text} class="note" role="status">{text}</p>
      ))}
      <Card flush note={<Key />}>
        <div class="plan">{lanes.length === 0 ? <Empty icon={CalendarX2} title={t("planNone")} /> : <Chart lanes={lanes} hours={hours} />}</div>
      </Card>
      <Moves />
      <Card title={t("planStarts")} flush>
        {sequence() >= 0 && (
          <Later>
            <Starts items={plan.found.items} namespace={namespace} />
          </Later>
        )}
      </Card>
      <Command lines={["gqueue -u all", 'curl -H "Authorization: Bearer $TOKEN" $URL/api/v3/plan']} />
    </>
  );
}

interface Asked {
  hours: number;
  search: string;
  namespace: string;
  plan: Read<Parameters<typeof lanesOf>[0]["plan"]>["found"];
  history: Parameters<typeof lanesOf>[0]["history"];
}

function useLanes({ hours, search, namespace, plan, history }: Asked): Lane[] {
  const toggled = place.value.query.get("open") ?? "";
  return useMemo(() => {
    const at = Date.now();
    const half = hours * 1_800_000;
    const few = nodes.peek().length <= FEW_NODES;
    const changed = new Set(toggled.split(","));
    const seen = namespace ? jobs.peek().filter((job) => job.namespace === namespace) : jobs.peek();
    const sources = { jobs: seen, nodes: nodes.peek(), plan, history, from: at - half, now: at, to: at + half };
    return lanesOf(sources, search, (node) => few !== changed.has(node));
  }, [redraw.value, hours, search, namespace, plan, history, toggled]);
}

function Filters({ hours, namespace }: { hours: number; namespace: string }) {
  const offered = HOURS.includes(String(hours)) ? HOURS : [String(hours), ...HOURS];
  return (
    <div class="toolbar">
      <Search label={t("search")} value={place.value.query.get("search") ?? ""} onText={(search) => setQuery({ search })} />
      <div class="short">
        <Select label={t("hours")} value={String(hours)} choices={offered.map((each) => [each, t("planSpan", spanOf(Number(each)))])} onChoose={(value) => setQuery({ hours: value })} />
      </div>
      <div class="short">
        <Select label={t("namespace")} value={namespace} choices={[["", t("allNamespaces")], ...namespaces.value.map((each) => [each, each] as const)]} onChoose={(value) => setQuery({ namespace: value })} />
      </div>
    </div>
  );
}

const spanOf = (hours: number): string => duration((hours * 3600) / 2);

const KINDS = ["past", "running", "planned", "band", "kept", "gap", "drain", "window", "other"] as const;

const Key = () => (
  <ul class="key" aria-label={t("planKey")}>
    {KINDS.map((kind) => (
      <li key={kind}>
        <span class={`swatch bar bar-${kind}`} aria-hidden="true" /> {t(`plan_${kind}`)}
      </li>
    ))}
  </ul>
);
