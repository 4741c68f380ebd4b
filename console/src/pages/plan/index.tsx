// Plan: past, present and planned use of each node and device, and the expected starts of waiting jobs.
import { useMemo } from "preact/hooks";
import type { Read } from "../../api/polled";
import { jobs, namespaces, nodes, sequence } from "../../live/store";
import { Command, Field, Later, Section } from "../../parts/basics";
import { place, setQuery } from "../../router";
import { t } from "../../texts";
import { Chart } from "./chart";
import { redraw, useHistory, usePlan } from "./data";
import { type Lane, lanesOf } from "./lanes";
import { Starts } from "./starts";

const HOURS = ["2", "8", "24", "72", "336"];
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
      <h1>{t("plan")}</h1>
      <p>{t("planHow")}</p>
      <Filters hours={hours} namespace={namespace} />
      <Key />
      {[plan.problem, history.problem].filter(Boolean).map((text) => (
        <p key={text} class="note" role="status">{text}</p>
      ))}
      {lanes.length === 0 ? <p>{t("planNone")}</p> : <Chart lanes={lanes} hours={hours} />}
      <Section title={t("planStarts")}>
        {sequence() >= 0 && (
          <Later>
            <Starts items={plan.found.items} namespace={namespace} />
          </Later>
        )}
      </Section>
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
    <div class="filters" role="search">
      <Field label={t("hours")}>
        <select value={String(hours)} onChange={(event) => setQuery({ hours: event.currentTarget.value })}>
          {offered.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
      <Field label={t("namespace")}>
        <select value={namespace} onChange={(event) => setQuery({ namespace: event.currentTarget.value })}>
          <option value="">{t("all")}</option>
          {namespaces.value.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
      <Field label={t("search")}>
        <input type="search" value={place.value.query.get("search") ?? ""} onInput={(event) => setQuery({ search: event.currentTarget.value })} />
      </Field>
    </div>
  );
}

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
