// The time of the map: now, or a moment of the range that the address keeps as `at`.
import { ChevronLeft, ChevronRight, X } from "lucide";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get } from "../../api/client";
import type { DevicesThen, SeriesRow } from "../../api/types";
import { Button, IconButton } from "../../design/button";
import { Card } from "../../design/card";
import { moment, now } from "../../format";
import { place, setQuery } from "../../router";
import { t } from "../../texts";
import { TimeChart } from "../../time/chart";
import { iso, spanNow } from "../../time/range";
import { RangeBar } from "../../time/range_bar";
import { useSeries } from "../../time/series";
import { UNITS } from "../../time/units";
import type { Shade } from "./tiles";

// While the slider is drawn, the devices are asked for after so short a pause.
const DRAG_MS = 80;
const OTHERWISE = "1d";

export interface Then {
  // Empty for now.
  at: string;
  found: DevicesThen | null;
  problem: string;
}

export function useThen(): Then {
  const asked = place.value.query.get("at") ?? "";
  const at = Number.isNaN(Date.parse(asked)) ? "" : asked;
  const read = useSignal<Omit<Then, "at">>({ found: null, problem: "" });
  useEffect(() => {
    if (!at) {
      read.value = { found: null, problem: "" };
      return;
    }
    const stop = new AbortController();
    const ask = () =>
      get<DevicesThen>(`/api/v3/devices/then?at=${encodeURIComponent(at)}`, stop.signal).then(
        (found) => (read.value = { found, problem: "" }),
        (error: unknown) => {
          if (error instanceof ApiError) read.value = { found: null, problem: error.message };
        },
      );
    const first = setTimeout(() => void ask(), read.peek().found ? DRAG_MS : 0);
    return () => {
      clearTimeout(first);
      stop.abort();
    };
  }, [at]);
  return { at, ...read.value };
}

const setAt = (seconds: number): void => setQuery({ at: iso(seconds) });

// What the colour says, of the whole cluster.
function curveOf(row: SeriesRow, shade: Shade): { values: SeriesRow["used"]; unit: (typeof UNITS)[keyof typeof UNITS] } {
  if (shade === "promised") return { values: row.promised, unit: UNITS.gpus };
  if (shade === "temperature") return { values: row.temperatureCelsius, unit: UNITS.celsius };
  return { values: shade === "load" ? row.utilization : row.memory, unit: UNITS.share };
}

export function MomentBar({ then, shade }: { then: Then; shade: Shade }) {
  return then.at ? (
    <Past then={then} shade={shade} />
  ) : (
    <div class="row">
      <Button onClick={() => setAt(Math.floor(now.peek() / 1000) - 60)}>{t("lookBack")}</Button>
    </div>
  );
}

function Past({ then, shade }: { then: Then; shade: Shade }) {
  const read = useSeries("of=Cluster", OTHERWISE);
  const span = spanNow(OTHERWISE);
  const step = read.found?.stepSeconds ?? 300;
  // Whole steps: the slider stops where there are samples.
  const least = Math.ceil(span.since / step) * step;
  const most = Math.floor((span.until ?? now.value / 1000) / step) * step;
  const at = Math.min(most, Math.max(least, Date.parse(then.at) / 1000));
  const row = read.found?.items[0];
  const curve = row ? curveOf(row, shade) : null;
  return (
    <Card title={t("mapThen", moment(then.at))} actions={<RangeBar otherwise={OTHERWISE} />} note={noteOf(then)}>
      <div class="stack">
        {read.found && curve && <TimeChart title={t(shade)} unit={curve.unit} series={read.found} at={at} onPoint={setAt} lines={[{ name: t(shade), values: curve.values, filled: true }]} />}
        <div class="row moment">
          <IconButton small icon={ChevronLeft} label={t("stepBack")} onClick={() => setAt(Math.max(least, at - step))} />
          <input type="range" class="slider grow" aria-label={t("momentOfMap")} aria-valuetext={moment(then.at)} min={least} max={most} step={step} value={at} onInput={(event) => setAt(Number(event.currentTarget.value))} />
          <IconButton small icon={ChevronRight} label={t("stepOn")} onClick={() => setAt(Math.min(most, at + step))} />
          <Button icon={X} onClick={() => setQuery({ at: "" })}>{t("toNow")}</Button>
        </div>
      </div>
    </Card>
  );
}

function noteOf({ found, problem }: Then): string | undefined {
  if (problem) return problem;
  return found && !found.nodes.length ? t(found.keptSince ? "notSampledThen" : "firstSample") : undefined;
}
