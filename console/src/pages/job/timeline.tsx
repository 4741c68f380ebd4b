// What happened to a job: its attempts and its events, the latest first.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, jobPath } from "../../api/client";
import type { EventRow, JobDetails, JobRow } from "../../api/types";
import { moment } from "../../format";
import { Command, Section } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { t } from "../../texts";

interface Entry {
  at: string;
  what: string;
  text: string;
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
      (error: unknown) => (problem.value = error instanceof Error ? error.message : String(error)),
    );
  }, [job.namespace, job.name, changed]);
  const entries = [...life(job, details), ...attempts(details), ...events.value.map(ofEvent)].sort((a, b) => b.at.localeCompare(a.at));
  return (
    <Section title={t("timeline")}>
      {problem.value && <p class="problem">{problem.value}</p>}
      <table>
        <thead>
          <tr>
            <th scope="col">{t("time")}</th>
            <th scope="col">{t("event")}</th>
            <th scope="col">{t("why")}</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={`${entry.at} ${entry.what} ${entry.text}`}>
              <td>{entry.at ? moment(entry.at) : "–"}</td>
              <td>{entry.what}</td>
              <td>{entry.text}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Command lines={[`kubectl get events --namespace ${job.namespace} --field-selector involvedObject.uid=${job.uid}`]} />
    </Section>
  );
}

function life(job: JobRow, details: JobDetails | null): Entry[] {
  const found: Entry[] = [{ at: job.submittedAt, what: t("lifeSubmitted"), text: job.user }];
  const admitted = details?.status.admittedTime;
  if (admitted) found.push({ at: admitted, what: t("lifeAdmitted"), text: job.nodes.join(", ") });
  if (job.startedAt) found.push({ at: job.startedAt, what: t("lifeStarted"), text: job.nodes.join(", ") });
  if (job.completedAt) found.push({ at: job.completedAt, what: t("lifeEnded"), text: messageOf(job) });
  return found;
}

const attempts = (details: JobDetails | null): Entry[] =>
  (details?.status.attempts ?? []).map((each) => ({
    at: each.endTime,
    what: `${t("attempt", each.number)}: ${each.reason}`,
    text: `${each.message} ${(each.nodes ?? []).join(", ")}`,
  }));

const ofEvent = (event: EventRow): Entry => ({
  at: event.at ?? "",
  what: event.reason + (event.count > 1 ? ` × ${event.count}` : ""),
  text: event.message,
});
