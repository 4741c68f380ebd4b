// Plan: past, present and planned use of each node and device, and the expected starts of waiting jobs.
import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { JobRow, PlanRow } from "../../api/types";
import { inTime, moment, now } from "../../format";
import { currentAt, jobs, keyOf, namespaces, nodes, sequence } from "../../live/store";
import { Command, ExpectedStart, Field, FINISHED, JobLink, Later, PhaseMark, Section } from "../../parts/basics";
import { VirtualList } from "../../parts/virtual_list";
import { place, setQuery } from "../../router";
import { t } from "../../texts";
import { type Read, useHistory, usePlan } from "./data";
import { type Bar, type Lane, lanesOf } from "./lanes";

const HOURS = ["2", "8", "24", "72", "336"];
const REDRAW_MS = 5000;
const MOST_STARTS = 100;
const slot = computed(() => Math.floor(currentAt.value / REDRAW_MS));
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

// Computed again every few seconds and not with each event: a bar moves by less than a pixel meanwhile.
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
  }, [slot.value, hours, search, namespace, plan, history, toggled]);
}

// Nodes that are not as they are by default: open where many are closed, and closed where few are open.
function toggle(node: string): void {
  const changed = new Set((place.value.query.get("open") ?? "").split(",").filter(Boolean));
  if (!changed.delete(node)) changed.add(node);
  setQuery({ open: [...changed].join(",") });
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

const HEIGHTS: Record<Lane["kind"], number> = { title: 30, window: 24, job: 24, node: 34, device: 24 };

function Chart({ lanes, hours }: { lanes: readonly Lane[]; hours: number }) {
  const half = hours * 1_800_000;
  const at = Math.floor(now.value / REDRAW_MS) * REDRAW_MS;
  return (
    <>
      <div class="axis" aria-hidden="true">
        {[-1, -0.5, 0, 0.5].map((part) => (
          <span key={part}>{part === 0 ? t("nowLine") : moment(new Date(at + part * half).toISOString())}</span>
        ))}
      </div>
      <VirtualList
        label={t("plan")}
        entries={lanes}
        heightOf={(lane) => HEIGHTS[lane.kind]}
        keyOf={(lane) => `${lane.kind} ${lane.key}`}
        fresh={`${at} ${half}`}
        draw={(lane) => <LaneView lane={lane} at={at} half={half} />}
      />
    </>
  );
}

interface Drawn {
  lane: Lane;
  at: number;
  half: number;
}

function LaneView({ lane, at, half }: Drawn) {
  if (lane.kind === "title") return <h2 class="line-title">{lane.title}</h2>;
  const busy = lane.devices.filter((bars) => bars.some((bar) => bar.kind === "running" || bar.kind === "other")).length;
  return (
    <div class={`lane lane-${lane.kind}`}>
      <span class="lane-name">
        {lane.kind === "node" ? (
          <button type="button" class="plain" aria-expanded={lane.open} onClick={() => toggle(lane.title)}>
            <span aria-hidden="true">{lane.open ? "▾" : "▸"}</span> {lane.title} <small>{t("planBusy", busy, lane.devices.length)}</small>
          </button>
        ) : (
          lane.title
        )}
      </span>
      <div class="track">
        {!lane.open &&
          lane.devices.map((bars, index) => bars.map((bar, nth) => <Thin key={`${index} ${nth}`} bar={bar} at={at} half={half} row={index} rows={lane.devices.length} />))}
        {lane.bars.map((bar, index) => (
          <BarView key={index} bar={bar} at={at} half={half} />
        ))}
      </div>
    </div>
  );
}

interface Placed {
  bar: Bar;
  at: number;
  half: number;
}

// Left edge and width in percent of the track; null outside of it.
function extent({ bar, at, half }: Placed): { left: string; width: string } | null {
  const left = Math.max(0, 50 + (50 * (bar.from - at)) / half);
  const right = Math.min(100, 50 + (50 * (bar.to - at)) / half);
  return right <= 0 || left >= 100 || right < left ? null : { left: `${left}%`, width: `${Math.max(0.2, right - left)}%` };
}

function BarView({ bar, at, half }: Placed) {
  const where = extent({ bar, at, half });
  if (!where) return null;
  const name = `bar bar-${bar.kind}${bar.open ? " open" : ""}`;
  if (!bar.href) return <span class={name} style={where} title={bar.title()}>{bar.text}</span>;
  return (
    <a class={name} style={where} href={bar.href} title={bar.title()}>
      {bar.text}
    </a>
  );
}

// A device of a node that is closed: a thin line without a name.
function Thin({ bar, at, half, row, rows }: Placed & { row: number; rows: number }) {
  const where = extent({ bar, at, half });
  if (!where) return null;
  const height = 100 / Math.max(1, rows);
  return <span class={`bar thin bar-${bar.kind}`} aria-hidden="true" style={{ ...where, top: `${row * height}%`, height: `${height}%` }} />;
}

// The planned starts and the running jobs as a table.
function Starts({ items, namespace }: { items: readonly PlanRow[]; namespace: string }) {
  const listed = useMemo(() => startsOf(namespace), [slot.value, namespace]);
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
