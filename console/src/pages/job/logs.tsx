// The live log of a job's workers.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, jobPath, send } from "../../api/client";
import type { JobRow } from "../../api/types";
import { FINISHED, Command, Section } from "../../parts/basics";
import { t } from "../../texts";

// Browsers open six connections to one server, of which the stream has one.
const AT_ONCE = 3;
const TAIL = 200;
const MOST_LINES = 5000;

export function Logs({ job }: { job: JobRow }) {
  const first = useSignal(0);
  const follows = useSignal(false);
  const groups = Math.ceil(job.workers / AT_ONCE);
  const id = job.number ?? job.name;
  return (
    <Section title={t("log")}>
      {groups > 1 && (
        <select aria-label={t("workers")} value={first.value} onChange={(event) => (first.value = Number(event.currentTarget.value))}>
          {Array.from({ length: groups }, (_, group) => (
            <option key={group} value={group * AT_ONCE}>
              {t("logWorkers", group * AT_ONCE, Math.min(job.workers, (group + 1) * AT_ONCE) - 1)}
            </option>
          ))}
        </select>
      )}{" "}
      <button type="button" onClick={() => (follows.value = !follows.value)}>
        {follows.value ? t("logStop") : t("logShow")}
      </button>
      {follows.value && <Lines key={`${job.uid} ${job.startedAt} ${first.value}`} job={job} first={first.value} />}
      <Command lines={[`gjob log -f ${id} --namespace ${job.namespace}`]} />
    </Section>
  );
}

function Lines({ job, first }: { job: JobRow; first: number }) {
  const lines = useSignal<readonly string[]>([]);
  const element = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    const add = (more: readonly string[]) => {
      const box = element.current;
      const atEnd = !box || box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      lines.value = [...lines.value, ...more].slice(-MOST_LINES);
      if (atEnd) requestAnimationFrame(() => box?.scrollTo(0, box.scrollHeight));
    };
    for (let worker = first; worker < Math.min(job.workers, first + AT_ONCE); worker++) void follow(job, worker, add, stop.signal);
    return () => stop.abort();
  }, []);
  return (
    <pre class="log" ref={element} tabIndex={0} role="log" aria-label={t("log")}>
      {lines.value.join("\n")}
    </pre>
  );
}

async function follow(job: JobRow, worker: number, add: (lines: readonly string[]) => void, signal: AbortSignal): Promise<void> {
  const prefix = job.workers > 1 ? `${worker}│ ` : "";
  const query = `worker=${worker}&tail=${TAIL}&follow=${!FINISHED.has(job.phase)}`;
  try {
    const response = await send("GET", `${jobPath(job.namespace, job.name)}/logs?${query}`, { signal });
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>).pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop() ?? "";
      if (parts.length) add(parts.map((line) => prefix + line));
    }
    add([...(rest ? [prefix + rest] : []), t("logEnded", worker)]);
  } catch (error) {
    if (!signal.aborted) add([t("logBroken", worker, error instanceof ApiError ? error.message : String(error))]);
  }
}
