// Values that come in while a page is open, as lines over time.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Chart } from "../design/chart";
import { clock, percent } from "../format";
import { currentAt } from "../live/store";
import { theme } from "../preferences";
import { t } from "../texts";

export interface Line {
  name: string;
  // From 0 to 1; null while it is not known.
  value: number | null;
}

const POINTS = 900;
// A chart of less is drawn as wide as this, so that its axis has whole seconds.
const LEAST_SECONDS = 60;
const HEIGHT = 160;
const COLOURS = ["--accent", "--good-mark", "--warn-mark", "--info-mark", "--bad-mark", "--muted"];

// Colours and dashes tell the lines apart.
const dashOf = (index: number): number[] => (index < COLOURS.length ? [] : [4, 3]);

export function LiveChart({ title, lines }: { title: string; lines: readonly Line[] }) {
  const frame = useRef<HTMLDivElement>(null);
  const data = useRef<(number | null)[][]>([]);
  const plot = useRef<uPlot | null>(null);
  const names = lines.map((line) => line.name).join(" ");
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
    data.current = Array.from({ length: lines.length + 1 }, () => []);
    const made = new uPlot(
      {
        width: Math.max(240, element.clientWidth),
        height: HEIGHT,
        cursor: { y: false },
        legend: { show: false },
        scales: { x: { range: (_, first, last) => [Math.min(first, last - LEAST_SECONDS), last] }, y: { range: [0, 100] } },
        axes: [
          { ...axis, space: 90, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000)) },
          { ...axis, size: 44, incrs: [25, 50], values: (_, ticks) => ticks.map((tick) => `${tick} %`) },
        ],
        series: [{}, ...lines.map((line, index) => ({ label: line.name, stroke: used(COLOURS[index % COLOURS.length] as string), width: 1.75, dash: dashOf(index), points: { show: false } }))],
      },
      data.current as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(240, element.clientWidth), height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [names, theme.value]);
  useEffect(() => {
    const [times, ...values] = data.current;
    if (!times || !plot.current) return;
    times.push(Date.now() / 1000);
    lines.forEach((line, index) => values[index]?.push(line.value === null ? null : line.value * 100));
    if (times.length > POINTS) data.current.forEach((each) => each.shift());
    plot.current.setData(data.current as uPlot.AlignedData);
  }, [currentAt.value, names]);
  const text = lines.map((line) => `${line.name} ${line.value === null ? "–" : percent(line.value)}`).join(", ");
  return (
    <Chart title={title} text={t("chartNow", title, text)}>
      <div ref={frame} />
    </Chart>
  );
}
