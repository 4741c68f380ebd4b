// Waste: who holds GPUs that do little, by job, user, namespace or project; and what jobs should request instead.
import { usePolled } from "../api/polled";
import type { DeviceRow, JobDevice, JobRow, RightSizePage, RightSizeRow } from "../api/types";
import { age, duration, gib, percent } from "../format";
import { jobs, keyOf, nodes } from "../live/store";
import { Command, Field, JobLink, Meter, Section } from "../parts/basics";
import { place, setQuery } from "../router";
import { t } from "../texts";

const BY = ["job", "user", "namespace", "project"] as const;

interface Use {
  name: string;
  job: JobRow | null;
  gpus: number;
  idle: number;
  promisedMiB: number;
  usedMiB: number;
  oldest: string | null;
}

export function WastePage() {
  const by = BY.find((each) => each === place.value.query.get("by")) ?? "job";
  const uses = usesBy(by);
  return (
    <>
      <h1>{t("waste")}</h1>
      <p>{t("wasteHow")}</p>
      <Field label={t("byWhom")}>
        <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value })}>
          {BY.map((each) => (
            <option key={each} value={each}>{t(each)}</option>
          ))}
        </select>
      </Field>
      {uses.length === 0 ? <p>{t("holdsNothingIdle")}</p> : <Uses uses={uses} by={by} />}
      <Command lines={["dovetail top", "ginfo --by-job"]} />
      <Section title={t("idleHolders")} note={t("idleHow")}>
        <Idle />
      </Section>
      <Section title={t("rightSizes")} note={t("rightSizesHow")}>
        <RightSizes />
      </Section>
    </>
  );
}

function usesBy(by: (typeof BY)[number]): Use[] {
  const devices = new Map<string, { device: DeviceRow; observedAt: string | null }>();
  for (const node of nodes.value) for (const device of node.devices) devices.set(device.uuid, { device, observedAt: node.observedAt });
  const found = new Map<string, Use>();
  for (const job of jobs.value) {
    if (job.phase !== "Running") continue;
    const name = by === "job" ? keyOf(job) : job[by] || t("none");
    const use = found.get(name) ?? { name, job: by === "job" ? job : null, gpus: 0, idle: 0, promisedMiB: 0, usedMiB: 0, oldest: null };
    for (const held of job.devices) {
      const seen = devices.get(held.uuid);
      // What a device that cannot report does is not known.
      if (!seen || seen.device.utilization === null) continue;
      const share = held.shareMilli / 1000;
      use.gpus += share;
      // A device's load is that of all its tenants: what one of them does is at most this.
      use.idle += share * (1 - seen.device.utilization);
      use.promisedMiB += held.memoryMiB;
      use.usedMiB += usedBy(job, held, seen.device);
      if (seen.observedAt && (!use.oldest || seen.observedAt < use.oldest)) use.oldest = seen.observedAt;
    }
    if (use.gpus > 0) found.set(name, use);
  }
  return [...found.values()].sort((a, b) => b.idle - a.idle).slice(0, 200);
}

// What the job's own processes use; of a device that attributes none, at most all that is used of it.
function usedBy(job: JobRow, held: JobDevice, device: DeviceRow): number {
  const own = device.tenants.filter((each) => each.namespace === job.namespace && each.job === job.number && each.usedMiB !== null);
  if (own.length) return own.reduce((sum, each) => sum + (each.usedMiB ?? 0), 0);
  return Math.min(held.memoryMiB, device.usedMiB ?? 0);
}

function Uses({ uses, by }: { uses: readonly Use[]; by: (typeof BY)[number] }) {
  return (
    <table>
      <thead>
        <tr>
          {[t(by), t("gpus"), t("idleGpus"), t("meanLoad"), t("promised"), t("used"), t("asOf", "")].map((title) => (
            <th scope="col" key={title}>{title}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {uses.map((use) => (
          <tr key={use.name}>
            <td>{use.job ? <JobLink job={use.job} /> : use.name}</td>
            <td class="number">{round(use.gpus)}</td>
            <td class="number">{round(use.idle)}</td>
            <td>
              <Meter part={1 - use.idle / use.gpus} label={percent(1 - use.idle / use.gpus)} /> {percent(1 - use.idle / use.gpus)}
            </td>
            <td class="number">{gib(use.promisedMiB)}</td>
            <td class="number">{gib(use.usedMiB)}</td>
            <td>{age(use.oldest)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// Jobs of which the idle policy has said that none of their devices works.
function Idle() {
  const idle = jobs.value.filter((job) => job.idle && job.phase === "Running");
  if (!idle.length) return <p>{t("noneIdle")}</p>;
  return (
    <ul class="jobs">
      {idle.map((job) => (
        <li key={keyOf(job)}>
          <JobLink job={job} /> {job.user}, {job.gpus} {t("gpus")}: {job.idle}
        </li>
      ))}
    </ul>
  );
}

const SIZES_AGAIN_MS = 30_000;
const MOST_SIZES = 100;

function RightSizes() {
  const { found, problem } = usePolled<RightSizePage | null>(`/api/v3/right-sizes?limit=${MOST_SIZES}`, SIZES_AGAIN_MS, null);
  if (problem) return <p class="problem">{problem}</p>;
  if (!found) return <p>{t("computing")}</p>;
  if (!found.items.length) return <p>{t("noSizes")}</p>;
  return (
    <>
      <table>
        <thead>
          <tr>
            {[t("job"), t("user"), t("request"), t("rightSize"), t("savedGpus"), t("promised"), t("peak"), t("meanUtilization"), t("measuredOver"), t("basis")].map((title) => (
              <th scope="col" key={title}>{title}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {found.items.map((row) => (
            <SizeRow key={`${row.namespace}/${row.job}`} row={row} />
          ))}
        </tbody>
      </table>
      <p class="note">{t("sizesShown", found.items.length, found.total)}</p>
      <Command lines={['curl -H "Authorization: Bearer $TOKEN" $URL/api/v3/right-sizes']} />
    </>
  );
}

const SizeRow = ({ row }: { row: RightSizeRow }) => (
  <tr>
    <td>
      <JobLink job={{ namespace: row.namespace, name: row.job, number: row.number }} />
    </td>
    <td>{row.user}</td>
    <td>{row.request}</td>
    <td>
      {row.suggested ? <a href={`/console/ask?from=${encodeURIComponent(`${row.namespace}/${row.job}`)}&namespace=${encodeURIComponent(row.namespace)}&gpu=${encodeURIComponent(row.suggested)}`}>{row.suggested}</a> : "–"}
    </td>
    <td class="number">{round(row.savedGpus)}</td>
    <td class="number">{gib(row.promisedMiB)}</td>
    <td class="number">{row.peakMiB ? gib(row.peakMiB) : "–"}</td>
    <td class="number">{row.meanUtilization === null ? "–" : percent(row.meanUtilization)}</td>
    <td>{t("runsMeasured", row.runs, duration(row.deviceSeconds))}</td>
    <td>{row.basis}</td>
  </tr>
);

const round = (gpus: number): string => String(Math.round(gpus * 10) / 10);
