// Small parts that every page uses.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { JobRow, Phase } from "../api/types";
import { duration, inTime, moment, secondsUntil } from "../format";
import { pathTo } from "../router";
import { t, type Text } from "../texts";

// A sign for each phase, so that colour never stands alone.
const SIGNS: Record<Phase, string> = {
  Queued: "◔",
  Held: "‖",
  Starting: "◑",
  Running: "●",
  Suspended: "‖",
  Succeeded: "✓",
  Failed: "✗",
  Cancelled: "⊘",
  TimedOut: "⌛",
  Preempted: "↯",
};

export const FINISHED: ReadonlySet<Phase> = new Set<Phase>(["Succeeded", "Failed", "Cancelled", "TimedOut", "Preempted"]);

export const phaseName = (phase: Phase): string => t(`phase${phase}` as Text);

export const PhaseMark = ({ phase }: { phase: Phase }) => (
  <span class={`phase phase-${phase}`}>
    <span aria-hidden="true">{SIGNS[phase]}</span> {phaseName(phase)}
  </span>
);

export const called = (job: { number: number | null; name: string }): string =>
  job.number === null ? job.name : `${job.number} ${job.name}`;

export const JobLink = ({ job }: { job: { namespace: string; name: string; number: number | null } }) => (
  <a href={pathTo("job", job.namespace, job.name)}>{called(job)}</a>
);

const left = (time: string): string => (secondsUntil(time) <= 0 ? t("nowLine") : duration(secondsUntil(time)));

// When a waiting job is expected to start, with the estimate's bounds.
export function ExpectedStart({ job }: { job: JobRow }) {
  if (!job.estimatedStart) return <>–</>;
  const bounds = job.earliest && job.latest ? t("bounds", left(job.earliest), left(job.latest)) : "";
  return (
    <span title={moment(job.estimatedStart)}>
      {inTime(job.estimatedStart)}
      {bounds && <small> {bounds}</small>}
    </span>
  );
}

// The same as a command line, to copy.
export function Command({ lines, label }: { lines: readonly string[]; label?: string }) {
  const copied = useSignal(false);
  const text = lines.join("\n");
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    copied.value = true;
    setTimeout(() => (copied.value = false), 2000);
  };
  return (
    <details class="command">
      <summary>{label ?? t("asCommand")}</summary>
      <pre tabIndex={0}>{text}</pre>
      <button type="button" onClick={() => void copy()}>
        {copied.value ? t("copied") : t("copy")}
      </button>
    </details>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onClose={onClose}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

// A part of a whole. The text beside it says the number.
export const Meter = ({ part, label, wide }: { part: number; label: string; wide?: boolean }) => (
  <svg class={wide ? "meter wide" : "meter"} role="img" aria-label={label} viewBox="0 0 100 10" preserveAspectRatio="none">
    <rect class="meter-whole" x="0" y="0" width="100" height="10" />
    <rect class="meter-part" x="0" y="0" width={Math.max(0, Math.min(100, part * 100))} height="10" />
  </svg>
);

export function Section({ title, children, note }: { title: string; children: ComponentChildren; note?: string }) {
  return (
    <section>
      <h2>{title}</h2>
      {children}
      {note && <p class="note">{note}</p>}
    </section>
  );
}

// What is below the fold, drawn once the rest of the page is painted.
export function Later({ children }: { children: ComponentChildren }) {
  const due = useSignal(false);
  useEffect(() => {
    const painted = setTimeout(() => (due.value = true));
    return () => clearTimeout(painted);
  }, []);
  return due.value ? <>{children}</> : null;
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  );
}
