// Lines over time with marks: what one points at is shown for all charts of the page, and a part that is dragged over
// becomes the time of the page.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Mark, Series } from "../api/types";
import { Chart } from "../design/chart";
import { axisTime } from "../format";
import { language, theme } from "../preferences";
import { t } from "../texts";
import { brush } from "./range";
import type { Unit } from "./units";

export interface Line {
  name: string;
  values: readonly (number | null)[] | null;
  // A surface below it.
  filled?: boolean;
}

interface Props {
  title: string;
  unit: Unit;
  series: Series;
  lines: readonly Line[];
  // Of the series; those of kinds that a page leaves out are not drawn.
  marks?: readonly Mark[];
  // A time that is marked with a line, and what a press on another one does; in seconds.
  at?: number;
  onPoint?: (seconds: number) => void;
}

const HEIGHT = 150;
// In pixels.
const LEAST_DRAG = 4;
const COLOURS = ["--accent", "--good-mark", "--warn-mark", "--info-mark", "--bad-mark", "--plain-mark"];
const MARKS: Record<Mark["kind"], string> = { Started: "--good-mark", Moved: "--info-mark", Preempted: "--warn-mark", Ended: "--plain-mark" };
const PAGE = uPlot.sync("page");
const HOUR = 3600;

// The time that one points at in a chart, in seconds.
const pointed = signal<number | null>(null);

export const startOf = (series: Series): number => Date.parse(series.since) / 1000;
const countOf = (lines: readonly Line[]): number => Math.max(0, ...lines.map((line) => line.values?.length ?? 0));
const colourOf = (index: number): string => COLOURS[index % COLOURS.length] as string;
const dashOf = (index: number): number[] => (index < COLOURS.length ? [] : [4, 3]);

export function TimeChart({ title, unit, series, lines, marks = [], at, onPoint }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(marks);
  shown.current = marks;
  const chosen = useRef({ at, onPoint });
  chosen.current = { at, onPoint };
  const count = countOf(lines);
  const start = startOf(series);
  const step = series.stepSeconds;
  const known = lines.filter((line) => line.values !== null);
  const names = known.map((line) => line.name).join("\n");
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    // A colour that depends on the scheme has its value only where it is used.
    const used = (name: string) => {
      element.style.color = `var(${name})`;
      const found = getComputedStyle(element).color;
      element.style.color = "";
      return found;
    };
    const axis = { stroke: used("--muted"), font: `11px ${getComputedStyle(element).fontFamily}`, grid: { stroke: used("--line"), width: 1 }, ticks: { show: false } };
    const colours = Object.fromEntries(Object.entries(MARKS).map(([kind, name]) => [kind, used(name)]));
    const made = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: HEIGHT,
        padding: [12, 28, null, null],
        cursor: { y: false, sync: { key: PAGE.key }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        legend: { show: false },
        scales: { y: { range: (_, __, last) => [0, unit.fixed ? unit.top : Math.max(unit.top, (last ?? 0) * 1.1)] } },
        axes: [
          { ...axis, space: 80, size: 26, values: (made, ticks) => ticks.map((tick) => axisTime(tick * 1000, ((made.scales["x"]?.max ?? 0) - (made.scales["x"]?.min ?? 0)) / HOUR)) },
          { ...axis, size: 52, space: 32, values: (_, ticks) => ticks.map(unit.text) },
        ],
        series: [
          {},
          ...known.map((line, index) => ({
            stroke: used(colourOf(index)),
            width: 1.5,
            dash: dashOf(index),
            points: { show: true, size: 4, filter: alone },
            ...(line.filled ? { fill: used("--accent-soft") } : {}),
          })),
        ],
        hooks: {
          draw: [(made) => drawMarks(made, shown.current, colours), (made) => drawAt(made, chosen.current.at, used("--ink"))],
          setCursor: [(made) => point(made)],
          setSelect: [(made) => select(made)],
        },
      },
      [[], ...known.map(() => [])] as unknown as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    onPress(made, (seconds) => chosen.current.onPoint?.(seconds));
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(200, element.clientWidth), height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, unit, theme.value, language.value]);
  useEffect(() => {
    const times = Array.from({ length: count }, (_, index) => start + index * step);
    plot.current?.setData([times, ...known.map((line) => [...(line.values ?? [])])] as unknown as uPlot.AlignedData);
  }, [series, names, unit, theme.value, language.value]);
  useEffect(() => plot.current?.redraw(false), [at]);
  return (
    <Chart title={title} text={`${title}. ${summary(known, unit)}`} legend={<Legend lines={known} unit={unit} start={start} step={step} />}>
      <div ref={frame} />
      {known.every((line) => line.values?.every((value) => value === null)) && <p class="no-values">{t("noValues")}</p>}
    </Chart>
  );
}

// A value without neighbours makes no line: it gets a dot.
function alone(made: uPlot, series: number): number[] {
  const values = made.data[series] ?? [];
  return Array.from(values.keys()).filter((index) => values[index] != null && values[index - 1] == null && values[index + 1] == null);
}

function drawMarks(made: uPlot, marks: readonly Mark[], colours: Record<string, string>): void {
  const { ctx, bbox } = made;
  ctx.save();
  for (const mark of marks) {
    const left = made.valToPos(Date.parse(mark.at) / 1000, "x", true);
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colours[mark.kind] ?? "";
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    const size = 4 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(left - size, bbox.top - 2 * size);
    ctx.lineTo(left + size, bbox.top - 2 * size);
    ctx.lineTo(left, bbox.top - size / 2);
    ctx.fill();
  }
  ctx.restore();
}

function drawAt(made: uPlot, at: number | undefined, colour: string): void {
  if (at === undefined) return;
  const { ctx, bbox } = made;
  const left = made.valToPos(at, "x", true);
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(left, bbox.top);
  ctx.lineTo(left, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

// A press without a drag, which would select a part of the range.
function onPress(made: uPlot, act: (seconds: number) => void): void {
  let from = 0;
  made.over.addEventListener("mousedown", (event) => (from = event.clientX));
  made.over.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - from) < LEAST_DRAG) act(Math.round(made.posToVal(event.offsetX, "x")));
  });
}

// Only the chart under the pointer tells the time; the others follow it.
function point(made: uPlot): void {
  if (!made.over.matches(":hover")) return;
  const index = made.cursor.idx;
  pointed.value = index === null || index === undefined ? null : ((made.data[0] as number[])[index] ?? null);
}

function select(made: uPlot): void {
  const { left, width } = made.select;
  if (width < LEAST_DRAG || !made.over.matches(":hover")) return;
  const [since, until] = [made.posToVal(left, "x"), made.posToVal(left + width, "x")];
  made.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  brush(Math.floor(since), Math.ceil(until));
}

// What is known of a line last, or at the time that one points at.
function valueOf(line: Line, index: number | null): number | null {
  const values = line.values ?? [];
  return index === null ? (values.findLast((value) => value !== null) ?? null) : (values[index] ?? null);
}

function Legend({ lines, unit, start, step }: { lines: readonly Line[]; unit: Unit; start: number; step: number }) {
  const index = pointed.value === null ? null : Math.round((pointed.value - start) / step);
  return (
    <ul class="key">
      {lines.map((line, at) => {
        const value = valueOf(line, index);
        return (
          <li key={line.name}>
            <span class={`dash dash-${at % COLOURS.length}${at < COLOURS.length ? "" : " dashed"}`} aria-hidden="true" />
            {line.name} <b>{value === null ? "–" : unit.text(value)}</b>
          </li>
        );
      })}
    </ul>
  );
}

// The chart in words: of each line the last value, the mean and the largest one.
function summary(lines: readonly Line[], unit: Unit): string {
  const said = lines.map((line) => {
    const values = (line.values ?? []).filter((value) => value !== null);
    if (!values.length) return t("lineUnknown", line.name);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return t("lineSummary", line.name, unit.text(values.at(-1) ?? 0), unit.text(mean), unit.text(Math.max(...values)));
  });
  return said.join(" ");
}
