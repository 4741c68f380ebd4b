// Why a job waits: each node's answer, grouped by reason, and what would change it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get, jobPath, post } from "../../api/client";
import type { DryRun, Explanation, JobDetails, JobRow, JobSpec } from "../../api/types";
import { duration, withLocalTimes } from "../../format";
import { nodes } from "../../live/store";
import { Command, FINISHED, Section } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { specOf } from "../../requests";
import { startsInSeconds } from "../../parts/verdict";
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

// The sentence with the numbers of now, where the explanation says the same as the job's message.
export function currentSentence(message: string, said: Explanation | null): string {
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
  return (
    <Section title={t("why")} note={said?.basis ?? ""}>
      {problem && <p class="problem">{problem}</p>}
      {!said && !problem && <p>{t("computing")}</p>}
      {said && (
        <>
          {!said.summary.endsWith(currentSentence(job.message, said)) && <p>{withLocalTimes(said.summary)}</p>}
          <ul>{said.notes.map((note) => <li key={note}>{withLocalTimes(note)}</li>)}</ul>
          <Nodes said={said} />
          {said.changes.length > 0 && (
            <>
              <h3>{t("help")}</h3>
              <ul class="changes">{said.changes.map((each) => <li key={each.text}>{withLocalTimes(each.text)}</li>)}</ul>
            </>
          )}
        </>
      )}
      {job.phase === "Queued" && details && <Levers job={job} spec={details.spec} />}
    </Section>
  );
}

// A bar of the nodes by reason; each part opens its nodes.
function Nodes({ said }: { said: Explanation }) {
  const groups = [...Map.groupBy(said.nodes, (each) => each.reason)].sort(([, a], [, b]) => b.length - a.length);
  if (!groups.length) return null;
  const text = (reason: string) => said.causes.find((cause) => cause.reason === reason)?.text ?? "";
  return (
    <>
      <h3>{t("whyNotNodes")}</h3>
      {groups.map(([reason, list]) => (
        <details key={reason} class="nodes">
          <summary>
            <strong>{reason || t("nodesFit")}</strong>:{" "}
            {reason ? t(list.length === 1 ? "nodeRefuses" : "nodesRefuse", list.length, text(reason)) : list.length}
          </summary>
          <table>
            <thead>
              <tr>
                <th scope="col">{t("node")}</th>
                <th scope="col">{t("why")}</th>
              </tr>
            </thead>
            <tbody>
              {list.map((each) => (
                <tr key={each.node}>
                  <td>{each.node}</td>
                  <td>{each.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      ))}
    </>
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
      <h3>{t("levers")}</h3>
      <ul class="levers">
        {(levers.value ?? []).map(({ request, said }) => (
          <li key={request} class={`lever outcome-${said.outcome}`}>
            <strong>{t("leverAsk", request)}</strong>: {effect(said)}
          </li>
        ))}
      </ul>
      <p class="note">{t("leversHow")}</p>
      <button type="button" disabled={busy.value} onClick={() => void compute()}>
        {busy.value ? t("computing") : t("leversRun")}
      </button>
      <Command lines={[`dovetail explain ${job.number ?? job.name} --namespace ${job.namespace}`]} />
    </>
  );
}

function effect(said: DryRun): string {
  if (said.outcome === "Starts") return t("leverStartsOn", (said.nodes ?? []).map((each) => each.node).join(", "));
  if (said.outcome === "Never") return t("leverNever", messageOf(said));
  const seconds = startsInSeconds(said);
  if (seconds !== null) return t("leverStartsIn", duration(seconds));
  return t("leverWaits", messageOf(said));
}
