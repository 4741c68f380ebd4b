// Waste: who holds GPUs that do little now, by job, user or namespace. From the devices' last reports.
import type { DeviceRow, JobRow } from "../api/types";
import { age, gib, percent } from "../format";
import { jobs, keyOf, nodes } from "../live/store";
import { Command, Field, JobLink, Meter } from "../parts/basics";
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
      if (!seen) continue;
      const share = held.shareMilli / 1000;
      use.gpus += share;
      // A device's load is that of all its tenants: what one of them does is at most this.
      use.idle += share * (1 - seen.device.utilization);
      use.promisedMiB += held.memoryMiB;
      use.usedMiB += Math.min(held.memoryMiB, seen.device.usedMiB);
      if (seen.observedAt && (!use.oldest || seen.observedAt < use.oldest)) use.oldest = seen.observedAt;
    }
    if (use.gpus > 0) found.set(name, use);
  }
  return [...found.values()].sort((a, b) => b.idle - a.idle).slice(0, 200);
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

const round = (gpus: number): string => String(Math.round(gpus * 10) / 10);
