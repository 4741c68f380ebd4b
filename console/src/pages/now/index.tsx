// Now: my jobs, what waits and why, what is free, what is wrong.
import type { JobRow } from "../../api/types";
import { jobs, keyOf, me } from "../../live/store";
import { Command, ExpectedStart, FINISHED, JobLink, PhaseMark, Section } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { t } from "../../texts";
import { Findings } from "./findings";
import { chosenNamespace, Models } from "./models";

const WAITING = new Set<JobRow["phase"]>(["Queued", "Held", "Suspended"]);

export function NowPage() {
  return (
    <>
      <h1>{t("now")}</h1>
      <div class="columns">
        <Section title={t("myJobs")}>
          <OwnJobs />
        </Section>
        <Section title={t("nextUp")}>
          <NextUp />
        </Section>
        <Section title={t("waitingByReason")}>
          <Reasons />
        </Section>
        <Section title={t("freeByModel")} note={t("largestHow", chosenNamespace())}>
          <Models />
        </Section>
        <Section title={t("wrong")}>
          <Findings />
        </Section>
      </div>
      <Command lines={["gqueue", "ginfo", "dovetail doctor"]} />
    </>
  );
}

const SHOWN = 8;

function OwnJobs() {
  const user = me.value?.username ?? "";
  const own = jobs.value.filter((job) => job.user === user && !FINISHED.has(job.phase)).sort(byState);
  if (!own.length) return <p>{t("noOwnJobs")}</p>;
  return (
    <>
      <Jobs list={own.slice(0, SHOWN)} />
      {own.length > SHOWN && <a href={`/console/queue?user=${encodeURIComponent(user)}`}>{t("allOwnJobs", own.length)}</a>}
    </>
  );
}

function NextUp() {
  // Jobs without a position, such as those that exceed the capacity, come last.
  const waiting = jobs.value.filter((job) => job.phase === "Queued").sort(byState);
  return waiting.length ? <Jobs list={waiting.slice(0, SHOWN)} /> : <p>{t("nothingWaits")}</p>;
}

const Jobs = ({ list }: { list: readonly JobRow[] }) => (
  <ul class="jobs">
    {list.map((job) => (
      <li key={keyOf(job)}>
        <PhaseMark phase={job.phase} /> <JobLink job={job} /> {job.phase === "Running" ? job.nodes.join(", ") : messageOf(job)}{" "}
        {WAITING.has(job.phase) && job.estimatedStart && (
          <span class="note">
            {t("expectedStart")}: <ExpectedStart job={job} />
          </span>
        )}
      </li>
    ))}
  </ul>
);

const byState = (a: JobRow, b: JobRow): number =>
  Number(WAITING.has(b.phase)) - Number(WAITING.has(a.phase)) || (a.position ?? 1e9) - (b.position ?? 1e9) || (b.number ?? 0) - (a.number ?? 0);

function Reasons() {
  const found = new Map<string, { jobs: number; gpus: number }>();
  for (const job of jobs.value) {
    if (!WAITING.has(job.phase)) continue;
    const reason = job.reason || job.phase;
    const entry = found.get(reason) ?? { jobs: 0, gpus: 0 };
    found.set(reason, { jobs: entry.jobs + 1, gpus: entry.gpus + job.gpus });
  }
  const running = jobs.value.filter((job) => job.phase === "Running" || job.phase === "Starting").length;
  return (
    <>
      <p>
        <a href="/console/queue?state=Running">
          {t("running")}: {running}
        </a>
      </p>
      {found.size === 0 ? (
        <p>{t("nothingWaits")}</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">{t("reason")}</th>
              <th scope="col" class="number">{t("jobsCount")}</th>
              <th scope="col" class="number">{t("gpus")}</th>
            </tr>
          </thead>
          <tbody>
            {[...found].sort(([, a], [, b]) => b.jobs - a.jobs).map(([reason, entry]) => (
              <tr key={reason}>
                <td>
                  <a href={`/console/queue?reason=${encodeURIComponent(reason)}`}>{reason}</a>
                </td>
                <td class="number">{entry.jobs}</td>
                <td class="number">{entry.gpus}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}
