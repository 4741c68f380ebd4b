// The range of a page: an hour to a month back, earlier and later, and the way back from what was brushed.
import { ChevronLeft, ChevronRight, X } from "lucide";
import { IconButton } from "../design/button";
import { axisTime } from "../format";
import { withQuery } from "../router";
import { t, type Text } from "../texts";
import { brushed, RANGES, range, type Range, shift, spanNow, unbrush } from "./range";

const NAMES: Record<Range, Text> = { "1h": "anHour", "1d": "aDay", "1w": "aWeek", "1mo": "aMonth" };

// `otherwise` is the range where none is chosen; null is the whole of a job.
export function RangeBar({ otherwise }: { otherwise: Range | null }) {
  const part = brushed.value;
  const chosen = range.value || otherwise;
  const names = Object.keys(RANGES) as Range[];
  return (
    <div class="range" role="group" aria-label={t("timeRange")}>
      {(part || chosen) && <IconButton small icon={ChevronLeft} label={t("earlier")} onClick={() => shift(spanNow(otherwise ?? "1h"), -0.5)} />}
      {part ? (
        <span class="range-part">
          {axisTime(part.since * 1000, 48)} – {axisTime((part.until ?? 0) * 1000, 48)}
          <IconButton small icon={X} label={t("wholeRange")} onClick={unbrush} />
        </span>
      ) : (
        <>
          {otherwise === null && (
            <a href={withQuery({ range: "", from: "", to: "" })} aria-current={chosen ? undefined : "true"}>{t("wholeRun")}</a>
          )}
          {names.map((each) => (
            <a key={each} href={withQuery({ range: each, from: "", to: "" })} aria-current={each === chosen ? "true" : undefined}>
              {t(NAMES[each])}
            </a>
          ))}
        </>
      )}
      {part && <IconButton small icon={ChevronRight} label={t("later")} onClick={() => shift(part, 0.5)} />}
    </div>
  );
}
