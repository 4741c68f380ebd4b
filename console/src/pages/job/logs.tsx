// The live log of a job's workers: all of them as one text, with a search and a download.
import { Download, Pause, Play } from "lucide";
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, jobPath, send } from "../../api/client";
import type { JobRow } from "../../api/types";
import { Button, ButtonLink } from "../../design/button";
import { Card } from "../../design/card";
import { Search, Select } from "../../design/field";
import { FINISHED } from "../../parts/basics";
import { place, setQuery } from "../../router";
import { t } from "../../texts";

// So many workers come in one answer.
const AT_ONCE = 64;
const TAIL = 200;
const MOST_LINES = 5000;
// Lines are drawn so often at most, however fast they come.
const DRAW_MS = 100;

// It opens at once, unless someone has stopped it; that of a job that has ended opens at its end.
export function Logs({ job }: { job: JobRow }) {
  const { query } = place.value;
  const first = Math.min(Number(query.get("worker") ?? 0) || 0, Math.max(0, job.workers - 1));
  const single = query.has("worker");
  const stopped = query.get("log") === "off";
  const wanted = `worker=${first}&workers=${single ? 1 : AT_ONCE}`;
  const find = query.get("find") ?? "";
  return (
    <Card
      title={t("log")}
      flush
      actions={
        <div class="row">
          {!FINISHED.has(job.phase) && (
            <Button small icon={stopped ? Play : Pause} onClick={() => setQuery({ log: stopped ? "" : "off" })}>
              {stopped ? t("logShow") : t("logStop")}
            </Button>
          )}
          <ButtonLink small icon={Download} download={`${job.namespace}-${job.name}.log`} href={`${jobPath(job.namespace, job.name)}/logs?${wanted}`}>
            {t("logDownload")}
          </ButtonLink>
        </div>
      }
    >
      <div class="toolbar log-bar">
        {job.workers > 1 && <Workers workers={job.workers} chosen={single ? String(first) : ""} />}
        <Search label={t("logSearch")} value={find} onText={(text) => setQuery({ find: text })} />
      </div>
      {!stopped && <Lines key={`${job.uid} ${job.startedAt} ${wanted}`} job={job} wanted={wanted} find={find} />}
    </Card>
  );
}

// At most so many workers are offered one by one.
const MOST_OFFERED = 256;

const Workers = ({ workers, chosen }: { workers: number; chosen: string }) => (
  <div class="short">
    <Select
      label={t("workers")}
      value={chosen}
      choices={[
        ["", workers > AT_ONCE ? t("logFirst", AT_ONCE) : t("allWorkers")],
        ...Array.from({ length: Math.min(workers, MOST_OFFERED) }, (_, worker) => [String(worker), `${t("worker")} ${worker}`] as const),
      ]}
      onChoose={(worker) => setQuery({ worker })}
    />
  </div>
);

function Lines({ job, wanted, find }: { job: JobRow; wanted: string; find: string }) {
  const lines = useSignal<readonly string[]>([]);
  const element = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    let fresh: string[] = [];
    let timer = 0;
    const draw = () => {
      timer = 0;
      const box = element.current;
      const atEnd = !box || box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      lines.value = [...lines.value, ...fresh].slice(-MOST_LINES);
      fresh = [];
      if (atEnd) requestAnimationFrame(() => box?.scrollTo(0, box.scrollHeight));
    };
    const add = (more: readonly string[]) => {
      fresh.push(...more.slice(-MOST_LINES));
      timer ||= window.setTimeout(draw, DRAW_MS);
    };
    void follow(job, wanted, add, stop.signal);
    return () => {
      window.clearTimeout(timer);
      stop.abort();
    };
  }, []);
  const needle = find.toLowerCase();
  const shown = needle ? lines.value.filter((line) => line.toLowerCase().includes(needle)) : lines.value;
  return (
    <>
      <p class={needle ? "note log-note" : "unseen"} role="status">
        {needle && t("logMatches", shown.length, lines.value.length)}
      </p>
      <pre class="log" ref={element} tabIndex={0} role="log" aria-label={t("log")}>
        {shown.join("\n")}
      </pre>
    </>
  );
}

async function follow(job: JobRow, wanted: string, add: (lines: readonly string[]) => void, signal: AbortSignal): Promise<void> {
  const query = `${wanted}&tail=${TAIL}&follow=${!FINISHED.has(job.phase)}`;
  try {
    const response = await send("GET", `${jobPath(job.namespace, job.name)}/logs?${query}`, { signal });
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>).pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop() ?? "";
      if (parts.length) add(parts);
    }
    add([...(rest ? [rest] : []), t("logEnded")]);
  } catch (error) {
    if (!signal.aborted) add([t("logBroken", error instanceof ApiError ? error.message : String(error))]);
  }
}
