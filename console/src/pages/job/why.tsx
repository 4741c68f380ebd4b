// Why a job waits: each node's answer, grouped by reason, and what would change it.
import { ChevronRight, CircleCheck, CircleX, Clock, Combine, RefreshCw } from "lucide";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get, jobPath, post } from "../../api/client";
import type { DryRun, Explanation, JobDetails, JobRow, JobSpec } from "../../api/types";
import { duration, withLocalTimes } from "../../format";
import { keyOf, nodes } from "../../live/store";
import { Badge } from "../../design/badge";
import { Button, ButtonLink } from "../../design/button";
import { Card } from "../../design/card";
import { Skeleton } from "../../design/empty";
import { Icon } from "../../design/icon";
import { Table } from "../../design/table";
import { FINISHED, NodeLink, Said } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { specOf } from "../../requests";
import { startsInSeconds } from "../../parts/verdict";
import { pathTo } from "../../router";
import { t } from "../../texts";

interface Read {
  found: Explanation | null;
  problem: string;
}

interface Props {
  job: JobRow;
  details: JobDetails | null;
  read: Read;
}

// Read again whenever the queue says something else of the job.
export function useExplanation(job: JobRow | undefined): Read {
  const read = useSignal<Read>({ found: null, problem: "" });
  const changed = job && !FINISHED.has(job.phase) ? `${job.uid} ${job.phase} ${job.reason} ${job.message}` : "";
  useEffect(() => {
    if (!job || !changed) return;
    const stop = new AbortController();
    void get<Explanation>(`${jobPath(job.namespace, job.name)}/explain`, stop.signal).then(
      (found) => (read.value = { found, problem: "" }),
      (error: unknown) => {
        if (error instanceof ApiError) read.value = { ...read.value, problem: error.message };
      },
    );
    return () => stop.abort();
  }, [changed]);
  return read.value;
}

// The job's message with the numbers of now, where the explanation ends with the same clauses.
export function current(job: JobRow, said: Explanation | null): Pick<JobRow, "message" | "details"> {
  const ending = said && job.details.length ? said.details.slice(-job.details.length) : [];
  const same = ending.length > 0 && ending.every((each, at) => each.code === job.details[at]?.code);
  return { message: currentSentence(job.message, said), details: same ? ending : job.details };
}

// The same of the English sentence.
function currentSentence(message: string, said: Explanation | null): string {
  if (!said) return message;
  const start = said.summary.length - message.length - MOST_DIGITS;
  for (let at = Math.max(0, start); at < said.summary.length; at++) {
    const ending = said.summary.slice(at);
    if (withoutNumbers(ending) === withoutNumbers(message)) return ending;
  }
  return message;
}

// By how much numbers may lengthen a sentence.
const MOST_DIGITS = 16;
const withoutNumbers = (text: string): string => text.replace(/\d+/g, "0");

export function Why({ job, details, read }: Props) {
  const { found: said, problem } = read;
  const summary = said && !said.summary.endsWith(currentSentence(job.message, said)) ? messageOf({ message: said.summary, details: said.details }) : "";
  return (
    <>
      <Card title={t("whyWaits")} note={said?.basis && <Said message={said.basis} details={said.basisDetails} />}>
        <div class="stack">
          {problem && <p class="problem">{problem}</p>}
          {!said && !problem && <Skeleton />}
          {summary && <p>{withLocalTimes(summary)}</p>}
          {said && said.notes.length > 0 && <ul class="bullets">{said.notes.map((note, at) => <li key={note}><Said message={note} details={said.noteDetails[at] ?? []} /></li>)}</ul>}
          {said && <Nodes said={said} />}
        </div>
      </Card>
      {(job.phase === "Queued" || (said?.changes.length ?? 0) > 0) && (
        <Card title={t("levers")} note={job.phase === "Queued" ? t("leversHow") : undefined}>
          <div class="stack">
            {said && said.changes.length > 0 && <ul class="bullets changes">{said.changes.map((each) => <li key={each.text}><Said message={each.text} details={each.details ?? []} /></li>)}</ul>}
            {job.reason === "Fragmentation" && <div class="row"><ButtonLink icon={Combine} href={`${pathTo("plan")}?moves=${encodeURIComponent(keyOf(job))}`}>{t("movesShow")}</ButtonLink></div>}
            {job.phase === "Queued" && details && <Levers job={job} spec={details.spec} />}
          </div>
        </Card>
      )}
    </>
  );
}

// The nodes by reason; each reason opens its nodes.
function Nodes({ said }: { said: Explanation }) {
  const groups = [...Map.groupBy(said.nodes, (each) => each.reason)].sort(([, a], [, b]) => b.length - a.length);
  if (!groups.length) return null;
  const causeOf = (reason: string) => said.causes.find((cause) => cause.reason === reason);
  return (
    <div class="stack tight">
      <h3>{t("whyNotNodes")}</h3>
      {groups.map(([reason, list]) => (
        <details key={reason} class="disclosure nodes">
          <summary>
            <Icon of={ChevronRight} />
            <Badge tone={reason ? "warn" : "good"}>{reason || t("nodesFit")}</Badge>
            {reason ? <span>{t(list.length === 1 ? "nodeRefuses" : "nodesRefuse", list.length)} (<Said message={causeOf(reason)?.text ?? ""} details={causeOf(reason)?.details ?? []} />)</span> : list.length}
          </summary>
          <Table
            label={reason || t("nodesFit")}
            rows={list}
            keyOf={(each) => each.node}
            columns={[
              { id: "node", title: t("node"), cell: (each) => <NodeLink name={each.node} /> },
              { id: "why", title: t("why"), text: true, cell: (each) => <Said message={each.message} details={each.details ?? []} /> },
            ]}
          />
        </details>
      ))}
    </div>
  );
}

interface Lever {
  request: string;
  said: DryRun;
}

// Other requests in place of this one: fewer GPUs, and other models, each judged by the queue.
function alternatives(job: JobRow): string[] {
  const found = /^(\d+)(?:\((.+)\))?$/.exec(job.request);
  if (!found) return [];
  const gpus = Number(found[1]);
  const model = found[2];
  const fewer: number[] = [];
  for (let n = Math.floor(gpus / 2); n >= 1; n = Math.floor(n / 2)) fewer.push(n);
  const models = [...new Set(nodes.value.flatMap((node) => node.devices.map((device) => device.model)))].sort();
  return [
    ...fewer.map((n) => (model ? `${n}(${model})` : String(n))),
    ...models.filter((each) => each !== model).map((each) => `${gpus}(${each})`),
    ...(gpus === 1 ? [model ? `0.5(${model})` : "0.5"] : []),
  ].slice(0, 8);
}

function Levers({ job, spec: base }: { job: JobRow; spec: JobSpec }) {
  const levers = useSignal<Lever[] | null>(null);
  const busy = useSignal(false);
  const compute = async () => {
    busy.value = true;
    const found: Lever[] = [];
    for (const request of alternatives(job)) {
      try {
        const spec = specOf({ gpu: request }, base);
        found.push({ request, said: await post<DryRun>("/api/v3/dry-run", { namespace: job.namespace, spec, inPlaceOf: job.name }) });
        levers.value = [...found];
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
    }
    levers.value = found;
    busy.value = false;
  };
  useEffect(() => {
    void compute();
  }, [job.uid]);
  return (
    <>
      <ul class="levers">
        {(levers.value ?? []).map(({ request, said }) => (
          <li key={request} class="lever">
            <Icon of={OUTCOMES[said.outcome === "Starts" ? "good" : said.outcome === "Never" || said.outcome === "Invalid" ? "bad" : "warn"]} />
            <span>
              <strong>{t("leverAsk", request)}</strong>: {effect(said)}
            </span>
            {said.outcome === "Starts" && <a href={cloneWith(job, request)}>{t("leverUse")}</a>}
          </li>
        ))}
      </ul>
      <div class="row">
        <Button small icon={RefreshCw} disabled={busy.value} onClick={() => void compute()}>
          {busy.value ? t("computing") : t("leversRun")}
        </Button>
      </div>
    </>
  );
}

const OUTCOMES = { good: CircleCheck, warn: Clock, bad: CircleX };

const cloneWith = (job: JobRow, gpu: string): string =>
  `${pathTo("submit")}?${new URLSearchParams({ from: `${job.namespace}/${job.name}`, namespace: job.namespace, gpu }).toString()}`;

function effect(said: DryRun): string {
  if (said.outcome === "Starts") return t("leverStartsOn", (said.nodes ?? []).map((each) => each.node).join(", "));
  if (said.outcome === "Never") return t("leverNever", messageOf(said));
  const seconds = startsInSeconds(said);
  if (seconds !== null) return t("leverStartsIn", duration(seconds));
  return t("leverWaits", messageOf(said));
}
