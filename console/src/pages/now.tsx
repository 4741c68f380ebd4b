// Now: my jobs, what waits and why, what is free, what is wrong.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get, post } from "../api/client";
import type { DeviceRow, DryRun, JobRow, NodeFindings, NodeRow } from "../api/types";
import { age } from "../format";
import { byName, jobs, keyOf, me, namespaces, nodes, sequence } from "../live/store";
import { Command, ExpectedStart, FINISHED, JobLink, Meter, PhaseMark, Section } from "../parts/basics";
import { specOf } from "../requests";
import { t } from "../texts";

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
          <Problems />
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
        <PhaseMark phase={job.phase} /> <JobLink job={job} /> {job.phase === "Running" ? job.nodes.join(", ") : job.message}{" "}
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

interface ModelUse {
  model: string;
  free: number;
  total: number;
  // The most free devices on one node: no single worker can start with more.
  most: number;
}

function modelUses(list: readonly NodeRow[]): ModelUse[] {
  const found = new Map<string, ModelUse>();
  for (const node of list) {
    const here = Map.groupBy(node.devices, (device: DeviceRow) => device.model);
    for (const [model, devices] of here) {
      const free = devices.filter((device) => device.available).length;
      const use = found.get(model) ?? { model, free: 0, total: 0, most: 0 };
      found.set(model, { model, free: use.free + free, total: use.total + devices.length, most: Math.max(use.most, free) });
    }
  }
  return [...found.values()].sort((a, b) => byName(a.model, b.model));
}

function Models() {
  const uses = modelUses(nodes.value);
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">{t("model")}</th>
          <th scope="col" class="number">{t("free")}</th>
          <th scope="col" class="number">{t("total")}</th>
          <th scope="col">{t("largestNow")}</th>
        </tr>
      </thead>
      <tbody>
        {uses.map((use) => (
          <tr key={use.model}>
            <td>{use.model}</td>
            <td class="number">
              {use.free} <Meter part={use.free / use.total} label={`${use.free} / ${use.total}`} />
            </td>
            <td class="number">{use.total}</td>
            <td>
              <Largest use={use} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const chosenNamespace = (): string => namespaces.value[0] ?? "default";

// The largest request that the queue would start now. Free devices bound it; reservations and quotas may lower it.
function Largest({ use }: { use: ModelUse }) {
  const answer = useSignal<string | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    answer.value = null;
    void (async () => {
      for (let gpus = use.most; gpus > 0; gpus = gpus > 1 ? Math.floor(gpus / 2) : 0) {
        const spec = specOf({ gpu: `${gpus}(${use.model})`, limit: "1h" });
        const said = await post<DryRun>("/api/v3/dry-run", { namespace: chosenNamespace(), spec }, { signal: stop.signal });
        if (said.outcome === "Starts") {
          answer.value = `${gpus}(${use.model}): ${said.nodes.map((each) => each.node).join(", ")}`;
          return;
        }
      }
      answer.value = t("largestNone");
    })().catch(() => undefined);
    return () => stop.abort();
  }, [use.most, use.free, use.model, me.value?.username]);
  return <>{answer.value ?? t("largestAsking")}</>;
}

const FINDINGS_AGAIN_MS = 15_000;

function useFindings(): { found: NodeFindings | null; problem: string } {
  const read = useSignal<{ found: NodeFindings | null; problem: string }>({ found: null, problem: "" });
  useEffect(() => {
    const stop = new AbortController();
    const ask = () =>
      get<NodeFindings>("/api/v3/findings", stop.signal).then(
        (found) => (read.value = { found, problem: "" }),
        (error: unknown) => {
          if (error instanceof ApiError) read.value = { ...read.value, problem: error.message };
        },
      );
    void ask();
    const again = setInterval(() => void ask(), FINDINGS_AGAIN_MS);
    return () => {
      clearInterval(again);
      stop.abort();
    };
  }, []);
  return read.value;
}

// What `dovetail doctor` finds on nodes, and what takes no work.
function Problems() {
  const { found, problem } = useFindings();
  if (sequence() < 0) return null;
  const oldest = nodes.value.reduce<string | null>((least, { observedAt: at }) => (at && (!least || at < least) ? at : least), null);
  const closed = nodes.value.reduce((sum, node) => sum + (node.takesWork ? node.devices.filter((device) => device.cordoned).length : node.devices.length), 0);
  return (
    <>
      {problem && <p class="problem">{problem}</p>}
      {found && found.total === 0 && <p>{t("nothingWrong")}</p>}
      <ul class="findings">
        {found?.items.map((each) => (
          <li key={each.message}>
            <details>
              <summary>
                <strong class={`level-${each.level}`}>{t(`level_${each.level}`)}</strong> {each.nodes.slice(0, 2).join(", ")}
                {each.count > 2 && ` ${t("andMore", each.count - 2)}`}: {each.message}
              </summary>
              {each.count > 2 && <p>{each.nodes.join(", ")}</p>}
              {each.fix && <p>{t("fix", each.fix)}</p>}
            </details>
          </li>
        ))}
      </ul>
      {found && found.total > found.items.length && <p>{t("moreFindings", found.total - found.items.length)}</p>}
      {closed > 0 && (
        <p>
          <a href="/console/map?state=closed">{t("closedDevices", closed)}</a>
        </p>
      )}
      <p class="note">
        {found && `${t("findingsOf", age(found.asOf))}. `}
        {t("oldestReport", age(oldest))}
      </p>
    </>
  );
}
