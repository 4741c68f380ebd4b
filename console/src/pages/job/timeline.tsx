// What happened to a job: its life, its attempts and its events, each once and in their order.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { failure, get, jobPath } from "../../api/client";
import type { EventRow, JobDetails, JobRow } from "../../api/types";
import { Card } from "../../design/card";
import { Command } from "../../design/command";
import { duration, moment, withLocalTimes } from "../../format";
import { English, FINISHED, phaseName } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { t } from "../../texts";

interface Entry {
  at: string;
  // Orders what happened in the same second, the unit of most of these times.
  rank: number;
  what: string;
  text: string;
  // Whether the text is what the API says.
  english?: boolean;
}

export function Timeline({ job, details }: { job: JobRow; details: JobDetails | null }) {
  const events = useSignal<EventRow[]>([]);
  const problem = useSignal("");
  const changed = `${job.phase} ${job.reason} ${job.startedAt}`;
  useEffect(() => {
    void get<{ items: EventRow[] }>(`${jobPath(job.namespace, job.name)}/events`).then(
      (found) => {
        events.value = found.items;
        problem.value = "";
      },
      (error: unknown) => (problem.value = failure(error)),
    );
  }, [job.namespace, job.name, changed]);
  const entries = entriesOf(job, details, events.value);
  return (
    <Card title={t("timeline")}>
      <div class="stack">
        {problem.value && <p class="problem">{problem.value}</p>}
        <ol class="timeline" aria-label={t("timeline")}>
          {entries.map((entry, index) => (
            <li key={`${entry.at} ${entry.what} ${entry.text}`}>
              <span class="row apart">
                <strong>{entry.what}</strong>
                {entry.at && (
                  <time class="muted" dateTime={entry.at} title={moment(entry.at)}>
                    {index === 0 ? moment(entry.at) : t("after", sinceFirst(entries, entry))}
                  </time>
                )}
              </span>
              {entry.text && <span class="muted">{entry.english ? <English text={entry.text} /> : withLocalTimes(entry.text)}</span>}
            </li>
          ))}
        </ol>
        <Command lines={[`kubectl get events --namespace ${job.namespace} --field-selector involvedObject.uid=${job.uid}`]} />
      </div>
    </Card>
  );
}

const sinceFirst = (entries: readonly Entry[], entry: Entry): string => duration((Date.parse(entry.at) - Date.parse(entries[0]?.at || entry.at)) / 1000);

function entriesOf(job: JobRow, details: JobDetails | null, events: readonly EventRow[]): Entry[] {
  const found = [...life(job, details), ...attempts(details), ...events.filter((event) => !isLife(event, job)).map(ofEvent)];
  // What has no time comes last.
  const key = (entry: Entry) => entry.at || "~";
  return found.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.rank - b.rank));
}

// Whether the event says what the job's own times say already.
function isLife(event: EventRow, job: JobRow): boolean {
  if (event.reason === "Running") return job.startedAt !== null;
  return event.reason === job.phase && FINISHED.has(job.phase) && job.completedAt !== null;
}

function life(job: JobRow, details: JobDetails | null): Entry[] {
  const found: Entry[] = [{ at: job.submittedAt, rank: 0, what: t("lifeSubmitted"), text: job.user }];
  const admitted = details?.status.admittedTime;
  if (admitted) found.push({ at: admitted, rank: 1, what: t("lifeAdmitted"), text: job.nodes.join(", ") });
  if (job.startedAt) found.push({ at: job.startedAt, rank: 3, what: t("lifeStarted"), text: admitted ? "" : job.nodes.join(", ") });
  if (job.completedAt) found.push({ at: job.completedAt, rank: 5, what: phaseName(job.phase), text: messageOf(job) });
  return found;
}

const attempts = (details: JobDetails | null): Entry[] =>
  (details?.status.attempts ?? []).map((each) => ({
    at: each.endTime,
    rank: 4,
    what: `${t("attempt", each.number)}: ${each.reason}`,
    text: [each.message, ...(each.nodes ?? [])].filter(Boolean).join(", "),
  }));

const ofEvent = (event: EventRow): Entry => ({
  at: event.at ?? "",
  rank: 2,
  what: event.reason + (event.count > 1 ? ` × ${event.count}` : ""),
  text: event.message,
  english: true,
});
