// Jobs: all jobs as a table, with gqueue's filters, and actions on many of them.
import { Inbox, Plus, UserRound } from "lucide";
import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { JobRow } from "../../api/types";
import { Button, ButtonLink } from "../../design/button";
import { Combobox } from "../../design/combobox";
import { Command } from "../../design/command";
import { Empty } from "../../design/empty";
import { Field, Input, Search } from "../../design/field";
import { PageHead, Tabs, type Tab } from "../../design/page";
import { age } from "../../format";
import { byName, currentAt, jobs, keyOf, me, sequence } from "../../live/store";
import { ExpectedStart, FINISHED, JobLink, PhaseBadge, phaseName, requestOf, shortUser } from "../../parts/basics";
import { type VirtualColumn, VirtualTable } from "../../parts/virtual_table";
import { language } from "../../preferences";
import { messageOf } from "../../reasons";
import { pathTo, place, setQuery, withQuery } from "../../router";
import { t } from "../../texts";
import { asCommand, COMPLETED, filter, matching, PHASES, shown, UNFINISHED } from "./filter";
import { SelectAll, SelectJob, Selection } from "./selection";

const COLUMNS = (): VirtualColumn<JobRow>[] => [
  { id: "select", title: t("select"), head: <SelectAll />, cell: (job) => <SelectJob job={job} /> },
  { id: "number", title: t("number"), number: true, cell: (job) => <span class="muted">{job.number ?? ""}</span> },
  { id: "name", title: t("name"), cell: (job) => <JobLink job={{ ...job, number: null }} /> },
  { id: "state", title: t("state"), cell: (job) => <PhaseBadge phase={job.phase} /> },
  { id: "gpus", title: t("request"), cell: requestOf },
  { id: "start", title: t("expectedStart"), cell: (job) => <ExpectedStart job={job} /> },
  { id: "why", title: t("whyOrWhere"), cell: (job) => <span class="why">{messageOf(job) || job.nodes.join(", ")}</span> },
  { id: "user", title: t("user"), cell: (job) => shortUser(job.user) },
  { id: "namespace", title: t("namespace"), cell: (job) => job.namespace },
  { id: "submitted", title: t("submitted"), cell: (job) => age(job.submittedAt) },
  { id: "position", title: t("position"), number: true, cell: (job) => job.position ?? "" },
  { id: "priority", title: t("priority"), number: true, cell: (job) => job.priority },
];

// A job in two lines, for a telephone.
const compact = (job: JobRow) => (
  <div class="stack tight">
    <div class="row whole apart">
      <span class="row whole clip">
        <SelectJob job={job} />
        <span class="clip">
          <JobLink job={job} />
        </span>
      </span>
      <PhaseBadge phase={job.phase} />
    </div>
    <span class="clip muted">
      {requestOf(job)} · {messageOf(job) || job.nodes.join(", ") || shortUser(job.user)}
    </span>
  </div>
);

export function JobsPage() {
  const columns = useMemo(COLUMNS, [language.value]);
  const count = shown.value.length;
  return (
    <>
      <PageHead
        title={t("jobs")}
        lead={
          <span role="status">{count ? t("jobsShown", count, jobs.value.length) : sequence() >= 0 ? t("noJobs") : ""}</span>
        }
      />
      <States />
      <Filters />
      {count > 0 || sequence() < 0 ? (
        <section class="card">
          <VirtualTable label={t("jobs")} rows={shown.value} columns={columns} compact={compact} keyOf={keyOf} sort={filter.value.sort} onSort={(sort) => setQuery({ sort })} />
        </section>
      ) : (
        <NoJobs />
      )}
      <Selection />
      <Command lines={[asCommand()]} />
    </>
  );
}

const NoJobs = () => (
  <section class="card">
    {jobs.value.length > 0 ? (
      <Empty icon={Inbox} title={t("noJobs")} text={t("noJobsFilters")} actions={<ButtonLink href={pathTo("jobs")}>{t("clearFilters")}</ButtonLink>} />
    ) : (
      <Empty icon={Inbox} title={t("noJobsYet")} text={t("noJobsYetText")} actions={<ButtonLink kind="primary" icon={Plus} href={pathTo("submit")}>{t("newJob")}</ButtonLink>} />
    )}
  </section>
);

function States() {
  const counts = new Map<string, number>(PHASES.map((phase) => [phase, 0]));
  for (const job of matching.value) counts.set(job.phase, (counts.get(job.phase) ?? 0) + 1);
  const unfinished = matching.value.filter((job) => !FINISHED.has(job.phase)).length;
  const tab = (state: string, text: string, count: number): Tab => ({
    href: withQuery({ state: state === UNFINISHED ? "" : state }),
    text,
    count,
    current: filter.value.state === state,
  });
  const tabs = [
    tab(UNFINISHED, t("unfinished"), unfinished),
    ...PHASES.filter((phase) => counts.get(phase) || filter.value.state === phase).map((phase) => tab(phase, phaseName(phase), counts.get(phase) ?? 0)),
    tab(COMPLETED, t("completed"), matching.value.length - unfinished),
    tab("all", t("all"), matching.value.length),
  ];
  return <Tabs label={t("state")} tabs={tabs} />;
}

function Filters() {
  const choices = useChoices();
  const { query } = place.value;
  const own = me.value?.username ?? "";
  const mine = query.get("user") === own;
  return (
    <div class="stack">
      <div class="toolbar">
        <Search label={t("searchJobs")} value={query.get("search") ?? ""} onText={(search) => setQuery({ search })} />
        <Button icon={UserRound} aria-pressed={mine} kind={mine ? "primary" : "secondary"} onClick={() => setQuery({ user: mine ? "" : own })}>
          {t("mine")}
        </Button>
        {(["user", "namespace", "project", "reason"] as const).map((name) => (
          <Combobox key={name} inBar label={t(name)} values={choices[name]} value={query.get(name) ?? ""} onChoose={(value) => setQuery({ [name]: value })} />
        ))}
      </div>
      <details class="disclosure" open={query.has("jobs") || query.has("names")}>
        <summary>{t("moreFilters")}</summary>
        <div class="fields">
          <Field label={t("numbers")}>
            <Input value={query.get("jobs") ?? ""} onText={(text) => setQuery({ jobs: text })} />
          </Field>
          <Field label={t("names")}>
            <Input value={query.get("names") ?? ""} onText={(text) => setQuery({ names: text })} />
          </Field>
        </div>
      </details>
    </div>
  );
}

const CHOICES_MS = 5000;
const slot = computed(() => Math.floor(currentAt.value / CHOICES_MS));

// What the filters offer. Found in all jobs, and so not with each event.
function useChoices() {
  return useMemo(
    () => ({
      namespace: unique((job) => job.namespace),
      user: unique((job) => job.user),
      project: unique((job) => job.project),
      reason: unique((job) => job.reason),
    }),
    [slot.value, jobs.value.length],
  );
}

const unique = (of: (job: JobRow) => string): string[] => [...new Set(jobs.value.map(of))].filter(Boolean).sort(byName);
