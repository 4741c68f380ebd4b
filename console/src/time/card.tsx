// A card with the curves of a page: their range, the charts, since when there are samples, and the marks as a list.
import { ChevronRight, ChartLine } from "lucide";
import type { ComponentChildren } from "preact";
import type { Mark, Series } from "../api/types";
import { Card } from "../design/card";
import { Empty, Skeleton } from "../design/empty";
import { Icon } from "../design/icon";
import { moment } from "../format";
import { JobLink } from "../parts/basics";
import { t, type Text } from "../texts";
import { startOf } from "./chart";
import type { Range } from "./range";
import { RangeBar } from "./range_bar";
import type { Curves } from "./series";

interface Props {
  read: Curves;
  otherwise: Range | null;
  marks?: readonly Mark[];
  // Of what has so many jobs that starts and ends are left out.
  rare?: boolean;
  draw: (series: Series) => ComponentChildren;
}

export function TimeCard({ read, otherwise, marks = [], rare = false, draw }: Props) {
  const { found, problem } = read;
  return (
    <Card title={t("overTime")} actions={<RangeBar otherwise={otherwise} />} note={found ? noteOf(found) : undefined}>
      {found ? (
        <div class="charts">{draw(found)}</div>
      ) : problem ? (
        <Empty icon={ChartLine} title={t("noSamples")} text={t("noSamplesText")} />
      ) : (
        <Skeleton lines={4} />
      )}
      {marks.length > 0 && <Marks title={rare ? "rareMarks" : "marks"} marks={marks} leftOut={found?.marksLeftOut ?? 0} />}
    </Card>
  );
}

// Where they come from if not from Dovetail's own samples, or that they begin later than the range.
function noteOf(series: Series): string | undefined {
  if (series.sourceProblem) return t("prometheusAway", series.sourceProblem);
  if (series.source === "Prometheus") return t("fromPrometheus");
  if (!series.keptSince) return t("firstSample");
  return Date.parse(series.keptSince) / 1000 > startOf(series) + series.stepSeconds ? t("keptSince", moment(series.keptSince)) : undefined;
}

const WORDS: Record<Mark["kind"], Text> = { Started: "markStarted", Moved: "markMoved", Preempted: "markPreempted", Ended: "markEnded" };

function Marks({ title, marks, leftOut }: { title: Text; marks: readonly Mark[]; leftOut: number }) {
  return (
    <details class="disclosure marks">
      <summary>
        <Icon of={ChevronRight} /> {t(title, marks.length + leftOut)}
      </summary>
      <ul class="list">
        {[...marks].reverse().map((mark) => (
          <li key={`${mark.at} ${mark.kind} ${mark.namespace}/${mark.job}`}>
            <span class={`happened happened-${mark.kind.toLowerCase()}`} aria-hidden="true" />
            <span class="grow">{t(WORDS[mark.kind])} <JobLink job={{ namespace: mark.namespace, name: mark.job, number: mark.number }} /></span>
            <span class="end"><time dateTime={mark.at}>{moment(mark.at)}</time></span>
          </li>
        ))}
      </ul>
    </details>
  );
}
