// Plan: a row for each device with its jobs until their limits, and the expected starts of waiting jobs.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../api/client";
import type { PlanRow } from "../api/types";
import { duration, inTime, now, secondsSince, secondsUntil } from "../format";
import { currentAt } from "../live/store";
import { called, Command, Field, JobLink, PhaseMark, Section } from "../parts/basics";
import { place, setQuery } from "../router";
import { t } from "../texts";

const PAGE = 1000;
const MOST_LANES = 200;
const AGAIN_MS = 10_000;
const HOURS = ["2", "8", "24", "72"];
const ROW = 18;

interface Bar {
  job: PlanRow;
  from: number;
  to: number;
  open: boolean;
}

export function PlanPage() {
  const rows = usePlan();
  const hours = Number(place.value.query.get("hours") ?? "8") || 8;
  const runs = rows.filter((row) => row.devices.length > 0);
  const waits = rows.filter((row) => row.devices.length === 0);
  return (
    <>
      <h1>{t("plan")}</h1>
      <p>{t("planHow")}</p>
      <Field label={t("hours")}>
        <select value={String(hours)} onChange={(event) => setQuery({ hours: event.currentTarget.value })}>
          {HOURS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
      {rows.length === 0 ? <p>{t("planNone")}</p> : <Lanes runs={runs} hours={hours} />}
      <Section title={t("planStarts")}>
        <Starts rows={[...waits, ...runs]} />
      </Section>
      <Command lines={["gqueue -u all", "curl -H \"Authorization: Bearer $TOKEN\" $URL/api/v3/plan"]} />
    </>
  );
}

function usePlan(): readonly PlanRow[] {
  const rows = useSignal<readonly PlanRow[]>([]);
  const slot = Math.floor(currentAt.value / AGAIN_MS);
  useEffect(() => {
    void get<{ items: PlanRow[] }>(`/api/v3/plan?limit=${PAGE}`).then((found) => (rows.value = found.items), () => undefined);
  }, [slot]);
  return rows.value;
}

function lanesOf(runs: readonly PlanRow[], hours: number): [string, Bar[]][] {
  const lanes = new Map<string, Bar[]>();
  const half = hours * 1800;
  for (const job of runs) {
    const from = Math.max(-half, -secondsSince(job.startsAt));
    const to = job.endsBy ? Math.min(half, secondsUntil(job.endsBy)) : half;
    for (const device of job.devices) {
      const lane = `${device.node}:${device.index}`;
      lanes.set(lane, [...(lanes.get(lane) ?? []), { job, from, to, open: !job.endsBy }]);
    }
  }
  return [...lanes].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).slice(0, MOST_LANES);
}

// Half of the width is the past. A bar without a limit fades into a dashed edge.
function Lanes({ runs, hours }: { runs: readonly PlanRow[]; hours: number }) {
  const lanes = lanesOf(runs, hours);
  const x = (seconds: number) => 160 + ((seconds / (hours * 1800) + 1) / 2) * 840;
  const height = lanes.length * ROW + 24;
  void now.value;
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={t("plan")}>
      <svg class="gantt" role="img" aria-label={`${t("plan")}: ${t("planStarts")}`} viewBox={`0 0 1000 ${height}`}>
        {lanes.map(([lane, bars], index) => (
          <g key={lane} transform={`translate(0 ${index * ROW + 20})`}>
            <text x="0" y="12">{lane}</text>
            {bars.map((bar) => (
              <g key={bar.job.namespace + bar.job.name}>
                <rect class={bar.open ? "bar open" : "bar"} x={x(bar.from)} y="2" width={Math.max(2, x(bar.to) - x(bar.from))} height={ROW - 4}>
                  <title>{`${called(bar.job)} (${bar.job.user})`}</title>
                </rect>
                <text class="bar-name" x={x(bar.from) + 3} y="12">{called(bar.job)}</text>
              </g>
            ))}
          </g>
        ))}
        <line class="now-line" x1={x(0)} x2={x(0)} y1="14" y2={height} />
        <text x={x(0) + 3} y="12">{t("nowLine")}</text>
      </svg>
    </div>
  );
}

// The same as a table.
function Starts({ rows }: { rows: readonly PlanRow[] }) {
  return (
    <table>
      <thead>
        <tr>
          {[t("job"), t("state"), t("request"), t("expectedStart"), t("endsBy"), t("nodes")].map((title) => (
            <th scope="col" key={title}>{title}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.slice(0, MOST_LANES).map((row) => (
          <tr key={row.namespace + row.name}>
            <td><JobLink job={row} /></td>
            <td><PhaseMark phase={row.phase} /></td>
            <td>{row.workers > 1 ? `${row.workers} × ${row.request}` : row.request}</td>
            <td>
              {row.devices.length ? t("ago", duration(secondsSince(row.startsAt))) : inTime(row.startsAt)}
              {row.earliest && row.latest && <small> {t("bounds", inTime(row.earliest), inTime(row.latest))}</small>}
            </td>
            <td>{row.endsBy ? inTime(row.endsBy) : t("noLimit")}</td>
            <td>{row.nodes.join(", ")}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
