// Job: its state and the reason first, then what would change it or what it prints, and what can be done with it.
import { SearchX } from "lucide";
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, get, jobPath } from "../../api/client";
import type { Explanation, JobDetails, JobRow } from "../../api/types";
import { ButtonLink } from "../../design/button";
import { Card, type Fact, Facts } from "../../design/card";
import { Command } from "../../design/command";
import { Empty, Skeleton } from "../../design/empty";
import { PageHead } from "../../design/page";
import { age, duration, moment, secondsSince, withLocalTimes } from "../../format";
import { job as jobOf, sequence } from "../../live/store";
import { called, ExpectedStart, FINISHED, NodeLinks, PhaseBadge, requestOf, shortUser } from "../../parts/basics";
import { messageOf } from "../../reasons";
import { manifest } from "../../requests";
import { pathTo, place } from "../../router";
import { t } from "../../texts";
import { JobCharts } from "../../time/charts";
import { Actions } from "./actions";
import { Devices } from "./devices";
import { Logs } from "./logs";
import { Timeline } from "./timeline";
import { current, useExplanation, Why } from "./why";

export function JobPage() {
  const [namespace = "", name = ""] = place.value.rest;
  const listed = jobOf(`${namespace}/${name}`);
  const details = useDetails(namespace, name, listed);
  // One job is there long before the list of all.
  const row = listed ?? (sequence() < 0 ? details?.row : undefined);
  const explanation = useExplanation(row);
  if (!row) return sequence() < 0 ? <Skeleton lines={8} /> : <Missing namespace={namespace} name={name} />;
  const ended = FINISHED.has(row.phase);
  return (
    <>
      <PageHead
        crumbs={
          <>
            <a href={pathTo("jobs")}>{t("jobs")}</a> / <a href={`${pathTo("jobs")}?namespace=${encodeURIComponent(namespace)}`}>{namespace}</a>
          </>
        }
        title={
          <>
            {called(row)} <PhaseBadge phase={row.phase} />
          </>
        }
        actions={<Actions job={row} />}
      />
      <p class="sentence" aria-live="polite">
        {sentence(row, explanation.found)}
      </p>
      <div class="main-and-side">
        <div class="stack wide">
          {!ended && !row.startedAt && <Why job={row} details={details} read={explanation} />}
          {row.startedAt && <Logs job={row} />}
          {row.startedAt && <JobCharts namespace={namespace} name={name} />}
          <Devices job={row} />
          <Commands job={row} details={details} />
        </div>
        <div class="stack wide side">
          <Card title={t("about")}>
            <Facts facts={factsOf(row)} />
          </Card>
          <Timeline job={row} details={details} />
        </div>
      </div>
    </>
  );
}

// A job whose object is gone keeps its curves.
const Missing = ({ namespace, name }: { namespace: string; name: string }) => (
  <>
    <Empty
      page
      icon={SearchX}
      title={t("noJobTitle")}
      text={t("noJob", name, namespace)}
      actions={
        <>
          <ButtonLink href={pathTo("jobs")}>{t("toJobs")}</ButtonLink>
          <ButtonLink href={`${pathTo("jobs")}?state=all&search=${encodeURIComponent(name)}`}>{t("searchFor", name)}</ButtonLink>
        </>
      }
    />
    <JobCharts namespace={namespace} name={name} quiet />
  </>
);

const stateOf = (row: JobRow): string => `${row.uid} ${row.phase} ${row.reason} ${row.priority} ${row.startedAt} ${row.completedAt}`;

// How long after an error it is asked again.
const AGAIN_MS = 3_000;

// Spec and status: at once, again whenever the job's row changes, and some time after an error.
function useDetails(namespace: string, name: string, listed: JobRow | undefined): JobDetails | null {
  const details = useSignal<JobDetails | null>(null);
  const asking = useRef(false);
  const failed = useSignal(0);
  const again = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(again.current), []);
  const before = sequence() < 0;
  const changed = listed ? stateOf(listed) : "";
  // What a question that is under way goes on with: the state, and the path of the job that the page shows.
  const latest = useRef(changed);
  latest.current = changed;
  const path = useRef("");
  path.current = jobPath(namespace, name);
  useEffect(() => {
    const ask = async (): Promise<void> => {
      asking.current = true;
      try {
        // The list may have been read later than an answer: each of its states is asked about twice at most.
        for (let state = "", times = 0; state !== latest.current || times < 2; ) {
          times = state === latest.current ? times + 1 : 1;
          state = latest.current;
          details.value = await get<JobDetails>(path.current);
          if (!latest.current || !differs(latest.current)) break;
        }
      } catch (error) {
        if (!(error instanceof ApiError)) details.value = null;
        clearTimeout(again.current);
        again.current = setTimeout(() => failed.value++, AGAIN_MS);
      }
      asking.current = false;
    };
    const known = (): string | null => {
      const found = details.peek();
      return found && stateOf(found.row);
    };
    const differs = (state: string): boolean => state !== known();
    if ((changed || before) && !asking.current && differs(changed)) void ask();
  }, [namespace, name, changed, before, failed.value]);
  return details.value;
}

function sentence(job: JobRow, said: Explanation | null) {
  const message = messageOf(current(job, said));
  if (message) return withLocalTimes(message);
  if (job.phase !== "Running") return null;
  return (
    <>
      {t("runsOn")} <NodeLinks names={job.nodes} />
    </>
  );
}

const ago = (time: string) => (
  <time dateTime={time} title={moment(time)}>
    {age(time)}
  </time>
);

function factsOf(job: JobRow): Fact[] {
  const facts: Fact[] = [
    [t("user"), shortUser(job.user)],
    [t("namespace"), job.namespace],
    [t("request"), requestOf(job)],
    [t("priority"), job.priority],
  ];
  if (job.project) facts.push([t("project"), job.project]);
  if (job.position !== null) facts.push([t("position"), job.position]);
  if (job.estimatedStart && !job.startedAt) facts.push([t("expectedStart"), <ExpectedStart job={job} />]);
  if (job.timeLimitSeconds) facts.push([t("timeLimit"), duration(job.timeLimitSeconds)]);
  if (job.nodes.length) facts.push([t("nodes"), <NodeLinks names={job.nodes} />]);
  facts.push([t("submitted"), ago(job.submittedAt)]);
  if (job.startedAt) facts.push([t("started"), ago(job.startedAt)]);
  if (job.completedAt) facts.push([t("ended"), ago(job.completedAt)]);
  if (job.startedAt) facts.push([t("ran"), duration(job.completedAt ? (Date.parse(job.completedAt) - Date.parse(job.startedAt)) / 1000 : secondsSince(job.startedAt))]);
  if (job.dependencies.length) facts.push([t("dependsOn"), job.dependencies.map((each) => each.name).join(", ")]);
  return facts;
}

function Commands({ job, details }: { job: JobRow; details: JobDetails | null }) {
  const id = job.number ?? job.name;
  return (
    <div class="stack">
      <Command lines={[`gjob show ${id} --namespace ${job.namespace}`, `dovetail explain ${id} --namespace ${job.namespace}`, `gjob log -f ${id} --namespace ${job.namespace}`]} />
      {details && <Command label={t("asYaml")} lines={[manifest(job.namespace, job.name, details.spec)]} />}
    </div>
  );
}
