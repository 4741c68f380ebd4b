// Parts of a whole as a bar. The text beside it, or the legend below it, says the numbers.
import { Fragment } from "preact";
import type { Tone } from "./badge";

type Shade = Exclude<Tone, "plain">;

interface MeterProps {
  // From 0 to 1.
  part: number;
  label: string;
  tone?: Shade;
}

export const Meter = ({ part, label, tone = "accent" }: MeterProps) => (
  <svg class="meter" role="img" aria-label={label} viewBox="0 0 100 1" preserveAspectRatio="none">
    <rect class={`part-${tone}`} x="0" y="0" width={Math.max(0, Math.min(100, part * 100))} height="1" />
  </svg>
);

export const MeterLine = ({ text, ...meter }: MeterProps & { text: string }) => (
  <span class="meter-line">
    <Meter {...meter} />
    <span>{text}</span>
  </span>
);

export interface Part {
  label: string;
  value: number;
  text: string;
  tone: Shade | "plain" | "empty";
}

// A whole in parts, with a legend that has their numbers.
export function PartsBar({ parts, label }: { parts: readonly Part[]; label: string }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  let at = 0;
  return (
    <div class="stack">
      <svg class="meter tall" role="img" aria-label={label} viewBox="0 0 100 1" preserveAspectRatio="none">
        {parts.map((part) => {
          const width = whole ? (100 * part.value) / whole : 0;
          const x = at;
          at += width;
          return <Fragment key={part.label}>{part.tone !== "empty" && <rect class={`part-${part.tone}`} x={x} y="0" width={Math.max(0, width - 0.3)} height="1" />}</Fragment>;
        })}
      </svg>
      <ul class="legend">
        {parts.map((part) => (
          <li key={part.label}>
            <span class={`mark mark-${part.tone}`} aria-hidden="true" />
            {part.label} <b>{part.text}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
