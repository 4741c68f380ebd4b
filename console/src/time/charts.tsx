// The charts of the pages: which figures stand together, and with which names.
import type { ComponentChildren } from "preact";
import type { Mark, Series, SeriesRow } from "../api/types";
import { Empty } from "../design/empty";
import { t } from "../texts";
import { ChartLine } from "lucide";
import { TimeCard } from "./card";
import { TimeChart } from "./chart";
import type { Range } from "./range";
import { useSeries } from "./series";
import { UNITS } from "./units";

const NONE: SeriesRow = {
  namespace: "", name: "", gpus: null, promised: null, used: null, utilization: null, memory: null, powerWatts: null,
  temperatureCelsius: null, waiting: null, running: null, starts: null, meanWaitSeconds: null,
};
const first = (series: Series): SeriesRow => series.items[0] ?? NONE;

// Promised against used, in GPUs; all GPUs too where they are known.
const Gpus = ({ series, row, marks }: { series: Series; row: SeriesRow; marks?: readonly Mark[] }) => (
  <TimeChart
    title={t("gpus")}
    unit={UNITS.gpus}
    series={series}
    {...(marks ? { marks } : {})}
    lines={[
      { name: t("promised"), values: row.promised },
      { name: t("atWork"), values: row.used, filled: true },
      { name: t("allGpus"), values: row.gpus },
    ]}
  />
);

export function ClusterCharts() {
  const read = useSeries("of=Cluster", "1d");
  const models = useSeries("of=Model", "1d");
  const marks = read.found?.marks ?? [];
  return (
    <TimeCard
      read={read}
      otherwise="1d"
      marks={marks}
      rare
      draw={(series) => (
        <>
          <Gpus series={series} row={first(series)} marks={marks} />
          <TimeChart title={t("queue")} unit={UNITS.jobs} series={series} marks={marks} lines={[{ name: t("waitingLine"), values: first(series).waiting, filled: true }, { name: t("runningLine"), values: first(series).running }]} />
          {models.found && <TimeChart title={t("loadByModel")} unit={UNITS.share} series={models.found} lines={models.found.items.map((row) => ({ name: row.name, values: row.utilization }))} />}
          <TimeChart title={t("startsLine")} unit={UNITS.jobs} series={series} lines={[{ name: t("startsLine"), values: first(series).starts, filled: true }]} />
          <TimeChart title={t("meanWait")} unit={UNITS.seconds} series={series} lines={[{ name: t("mean"), values: first(series).meanWaitSeconds }]} />
          <TimeChart title={t("memory")} unit={UNITS.share} series={series} lines={[{ name: t("memory"), values: first(series).memory, filled: true }]} />
          <TimeChart title={t("power")} unit={UNITS.watts} series={series} lines={[{ name: t("power"), values: first(series).powerWatts, filled: true }]} />
        </>
      )}
    />
  );
}

export function NodeCharts({ node }: { node: string }) {
  const name = encodeURIComponent(node);
  const read = useSeries(`of=Node&name=${name}`, "1d");
  const devices = useSeries(`of=Device&name=${name}`, "1d");
  const marks = read.found?.marks ?? [];
  const each = (of: (row: SeriesRow) => SeriesRow["used"]) => (devices.found?.items ?? []).map((row) => ({ name: row.name, values: of(row) }));
  return (
    <TimeCard
      read={read}
      otherwise="1d"
      marks={marks}
      draw={(series) => (
        <>
          <Gpus series={series} row={first(series)} marks={marks} />
          {devices.found && (
            <>
              <TimeChart title={t("promised")} unit={UNITS.gpus} series={devices.found} marks={marks} lines={each((row) => row.promised)} />
              <TimeChart title={t("load")} unit={UNITS.share} series={devices.found} marks={marks} lines={each((row) => row.utilization)} />
              <TimeChart title={t("memory")} unit={UNITS.share} series={devices.found} lines={each((row) => row.memory)} />
              <TimeChart title={t("temperature")} unit={UNITS.celsius} series={devices.found} lines={each((row) => row.temperatureCelsius)} />
              <TimeChart title={t("power")} unit={UNITS.watts} series={devices.found} lines={each((row) => row.powerWatts)} />
            </>
          )}
        </>
      )}
    />
  );
}

// From its start to its end, until a part is brushed.
export function JobCharts({ namespace, name, quiet }: { namespace: string; name: string; quiet?: boolean }) {
  const read = useSeries(`of=Job&namespace=${encodeURIComponent(namespace)}&name=${encodeURIComponent(name)}`, null);
  const marks = read.found?.marks ?? [];
  if (quiet && !read.found) return null;
  return (
    <TimeCard
      read={read}
      otherwise={null}
      marks={marks}
      draw={(series) => (
        <>
          <Gpus series={series} row={first(series)} marks={marks} />
          <TimeChart title={t("memory")} unit={UNITS.share} series={series} marks={marks} lines={[{ name: t("ofPromised"), values: first(series).memory, filled: true }]} />
          <TimeChart title={t("temperature")} unit={UNITS.celsius} series={series} lines={[{ name: t("hottest"), values: first(series).temperatureCelsius }]} />
          <TimeChart title={t("power")} unit={UNITS.watts} series={series} lines={[{ name: t("power"), values: first(series).powerWatts, filled: true }]} />
        </>
      )}
    />
  );
}

const MOST_LINES = 8;
type Lines = (of: (row: SeriesRow) => SeriesRow["used"]) => { name: string; values: SeriesRow["used"] }[];

// All subjects of a kind, those that hold most first: one line each.
function LineCharts({ of, otherwise, draw }: { of: string; otherwise: Range; draw: (series: Series, lines: Lines) => ComponentChildren }) {
  const read = useSeries(`of=${of}`, otherwise);
  const lines: Lines = (values) => (read.found?.items ?? []).slice(0, MOST_LINES).map((row) => ({ name: row.name, values: values(row) }));
  return (
    <TimeCard
      read={read}
      otherwise={otherwise}
      draw={(series) => (series.items.length ? draw(series, lines) : <Empty icon={ChartLine} title={t("noSamples")} text={t("noSamplesText")} />)}
    />
  );
}

export const HolderCharts = ({ of, otherwise }: { of: "Namespace" | "Project"; otherwise: Range }) => (
  <LineCharts
    of={of}
    otherwise={otherwise}
    draw={(series, lines) => (
      <>
        <TimeChart title={t("promised")} unit={UNITS.gpus} series={series} lines={lines((row) => row.promised)} />
        <TimeChart title={t("atWork")} unit={UNITS.gpus} series={series} lines={lines((row) => row.used)} />
        <TimeChart title={t("waitingJobs")} unit={UNITS.jobs} series={series} lines={lines((row) => row.waiting)} />
        <TimeChart title={t("meanWait")} unit={UNITS.seconds} series={series} lines={lines((row) => row.meanWaitSeconds)} />
      </>
    )}
  />
);

export const ModelCharts = ({ otherwise }: { otherwise: Range }) => (
  <LineCharts
    of="Model"
    otherwise={otherwise}
    draw={(series, lines) => (
      <>
        <TimeChart title={t("promised")} unit={UNITS.gpus} series={series} lines={lines((row) => row.promised)} />
        <TimeChart title={t("load")} unit={UNITS.share} series={series} lines={lines((row) => row.utilization)} />
        <TimeChart title={t("memory")} unit={UNITS.share} series={series} lines={lines((row) => row.memory)} />
        <TimeChart title={t("temperature")} unit={UNITS.celsius} series={series} lines={lines((row) => row.temperatureCelsius)} />
      </>
    )}
  />
);
