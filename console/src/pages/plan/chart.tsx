// The plan as a chart: a row for each node and device, the past on the left and the future on the right.
import { useCallback } from "preact/hooks";
import { axisTime, now } from "../../format";
import { VirtualList } from "../../parts/virtual_list";
import { place, setQuery } from "../../router";
import { t } from "../../texts";
import { REDRAW_MS } from "./data";
import type { Bar, Lane } from "./lanes";

const HEIGHTS: Record<Lane["kind"], number> = { title: 30, window: 24, job: 24, node: 34, device: 24 };

export function Chart({ lanes, hours }: { lanes: readonly Lane[]; hours: number }) {
  const half = hours * 1_800_000;
  const at = Math.floor(now.value / REDRAW_MS) * REDRAW_MS;
  const draw = useCallback((lane: Lane) => <LaneView lane={lane} at={at} half={half} />, [at, half]);
  return (
    <>
      <div class="axis" aria-hidden="true">
        {[-1, -0.5, 0, 0.5].map((part) => (
          <span key={part}>{part === 0 ? t("nowLine") : axisTime(at + part * half, hours)}</span>
        ))}
      </div>
      <VirtualList
        label={t("plan")}
        entries={lanes}
        heightOf={(lane) => HEIGHTS[lane.kind]}
        keyOf={(lane) => `${lane.kind} ${lane.key}`}
        draw={draw}
      />
    </>
  );
}

// Nodes that are not as they are by default: open where many are closed, and closed where few are open.
function toggle(node: string): void {
  const changed = new Set((place.value.query.get("open") ?? "").split(",").filter(Boolean));
  if (!changed.delete(node)) changed.add(node);
  setQuery({ open: [...changed].join(",") });
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
          <button type="button" class="link" aria-expanded={lane.open} onClick={() => toggle(lane.title)}>
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
