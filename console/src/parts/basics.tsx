// How jobs are named and their states are marked, on every page.
import { Ban, CircleCheck, CirclePause, CirclePlay, CircleX, Clock, type IconNode, LoaderCircle, TimerOff, Zap } from "lucide";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { JobRow, Phase } from "../api/types";
import { Badge, type Tone } from "../design/badge";
import { duration, inTime, moment, secondsUntil, withLocalTimes } from "../format";
import { messageOf, speaks } from "../reasons";
import { pathTo } from "../router";
import { t, type Text } from "../texts";

const MARKS: Record<Phase, readonly [Tone, IconNode]> = {
  Queued: ["warn", Clock],
  Held: ["plain", CirclePause],
  Starting: ["info", LoaderCircle],
  Running: ["info", CirclePlay],
  Suspended: ["plain", CirclePause],
  Succeeded: ["good", CircleCheck],
  Failed: ["bad", CircleX],
  Cancelled: ["plain", Ban],
  TimedOut: ["bad", TimerOff],
  Preempted: ["warn", Zap],
};

export const FINISHED: ReadonlySet<Phase> = new Set<Phase>(["Succeeded", "Failed", "Cancelled", "TimedOut", "Preempted"]);
export const WAITING: ReadonlySet<Phase> = new Set<Phase>(["Queued", "Held", "Suspended"]);

export const phaseName = (phase: Phase): string => t(`phase${phase}` as Text);

export const PhaseBadge = ({ phase }: { phase: Phase }) => (
  <Badge tone={MARKS[phase][0]} icon={MARKS[phase][1]}>
    {phaseName(phase)}
  </Badge>
);

export interface Named {
  namespace: string;
  name: string;
  number: number | null;
}

export const called = (job: { number: number | null; name: string }): string =>
  job.number === null ? job.name : `${job.number} ${job.name}`;

// What the API says in English alone: a screen reader speaks it so in every language of the page.
export const English = ({ text }: { text: string }) => <span lang="en">{withLocalTimes(text)}</span>;

// A sentence of the API with its clauses, in the language of the page where each clause is translated.
export const Said = ({ message, details }: { message: string; details: JobRow["details"] }) => {
  if (!speaks({ message, details })) return <English text={capital(message)} />;
  return <>{withLocalTimes(capital(messageOf({ message, details })))}</>;
};

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1);

export const JobLink = ({ job }: { job: Named }) => (
  <a class="open" href={pathTo("job", job.namespace, job.name)}>{called(job)}</a>
);

export const NodeLink = ({ name }: { name: string }) => (
  <a class="open" href={pathTo("node", name)}>{name}</a>
);

export const NodeLinks = ({ names }: { names: readonly string[] }) => (
  <>
    {names.map((name, index) => (
      <span key={name}>
        {index > 0 && ", "}
        <NodeLink name={name} />
      </span>
    ))}
  </>
);

// A user's name without what is the same for all service accounts.
export const shortUser = (user: string): string => user.replace("system:serviceaccount:", "");

export const requestOf = (job: { workers: number; request: string }): string =>
  job.workers > 1 ? `${job.workers} × ${job.request}` : job.request;

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

// What is below the fold, drawn once the rest of the page is painted.
export function Later({ children }: { children: ComponentChildren }) {
  const due = useSignal(false);
  useEffect(() => {
    const painted = setTimeout(() => (due.value = true));
    return () => clearTimeout(painted);
  }, []);
  return due.value ? <>{children}</> : null;
}
