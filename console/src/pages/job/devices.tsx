// The devices of a job with what they do now, and their load as it comes in.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { DeviceRow, JobDevice, JobRow } from "../../api/types";
import { age, gib, percent } from "../../format";
import { currentAt, nodes } from "../../live/store";
import { Meter, Section } from "../../parts/basics";
import { t } from "../../texts";

interface Held {
  held: JobDevice;
  device: DeviceRow | undefined;
  observedAt: string | null;
}

export function Devices({ job }: { job: JobRow }) {
  if (!job.devices.length) return null;
  const rows = job.devices.map((held): Held => {
    const node = nodes.value.find((each) => each.name === held.node);
    const device = node?.devices.find((each) => each.uuid === held.uuid);
    return { held, device, observedAt: node?.observedAt ?? null };
  });
  const now = job.completedAt === null;
  return (
    <Section title={t("devices")}>
      <table>
        <thead>
          <tr>
            {[t("worker"), t("device"), t("model"), t("share"), t("promised"), ...(now ? [t("used"), t("load"), t("asOf", "")] : [])].map((title) => (
              <th scope="col" key={title}>{title}</th>
            ))}
          </tr>
        </thead>
        <tbody>{rows.map((row) => <Row key={row.held.uuid + row.held.worker} row={row} now={now} />)}</tbody>
      </table>
      {now && <Load rows={rows} />}
    </Section>
  );
}

function Row({ row: { held, device, observedAt }, now }: { row: Held; now: boolean }) {
  return (
    <tr>
      <td class="number">{held.worker}</td>
      <td>
        {held.node}:{held.index}
      </td>
      <td>{device?.model ?? ""}</td>
      <td class="number">{held.shareMilli / 1000}</td>
      <td class="number">{gib(held.memoryMiB)}</td>
      {now && (
        <>
          <td class="number">{device?.usedMiB != null ? gib(device.usedMiB) : "–"}</td>
          <td>
            {device?.utilization != null ? <Meter part={device.utilization} label={percent(device.utilization)} /> : null} {device?.utilization != null ? percent(device.utilization) : "–"}
          </td>
          <td>{age(observedAt)}</td>
        </>
      )}
    </tr>
  );
}

const POINTS = 900;

// A line for each device, from the moment that the page was opened.
function Load({ rows }: { rows: readonly Held[] }) {
  const frame = useRef<HTMLDivElement>(null);
  const data = useRef<number[][]>([]);
  const plot = useRef<uPlot | null>(null);
  const lines = rows.slice(0, 8);
  const names = lines.map(({ held }) => `${held.node}:${held.index}`).join(" ");
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const ink = getComputedStyle(element).color;
    data.current = Array.from({ length: lines.length + 1 }, () => []);
    const made = new uPlot(
      {
        width: Math.max(320, element.clientWidth),
        height: 180,
        scales: { y: { range: [0, 100] } },
        axes: [{ stroke: ink }, { stroke: ink, values: (_, ticks) => ticks.map((tick) => `${tick} %`) }],
        series: [
          {},
          ...lines.map(({ held }, index) => ({
            label: `${held.node}:${held.index}`,
            stroke: ink,
            width: 1.5,
            // Dashes and not colours tell the lines apart.
            dash: index ? [2 + 3 * index, 3] : [],
          })),
        ],
      },
      data.current as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    return () => made.destroy();
  }, [names]);
  useEffect(() => {
    const [times, ...loads] = data.current;
    if (!times || !plot.current) return;
    times.push(Date.now() / 1000);
    lines.forEach(({ device }, index) => loads[index]?.push((device?.utilization ?? 0) * 100));
    if (times.length > POINTS) data.current.forEach((each) => each.shift());
    plot.current.setData(data.current as uPlot.AlignedData);
  }, [currentAt.value, names]);
  return (
    <figure>
      <figcaption>{t("loadSince")}</figcaption>
      <div ref={frame} role="img" aria-label={t("loadSince")} />
    </figure>
  );
}
