// What the gateway shows, as it is now. The maps change in place; pages read them through the versions.
import { computed, signal } from "@preact/signals";
import type { Delta, JobRow, Me, NodeRow, Snapshot } from "../api/types";

// away: the gateway does not answer. signedOut: the session has ended. denied: the user may list nothing.
export type Link = "starting" | "live" | "polling" | "away" | "signedOut" | "denied";

export const link = signal<Link>("starting");
export const deniedWhy = signal("");
// The host of the OpenID provider at which people sign in; empty without one.
export const provider = signal("");
// When the data were last known to be current, in milliseconds since the epoch.
export const currentAt = signal(0);
export const me = signal<Me | null>(null);

const jobMap = new Map<string, JobRow>();
const nodeMap = new Map<string, NodeRow>();
const jobsVersion = signal(0);
const nodesVersion = signal(0);
let epoch = "";
let seq = -1;

export const keyOf = (job: { namespace: string; name: string }): string => `${job.namespace}/${job.name}`;

export const jobs = computed<readonly JobRow[]>(() => (jobsVersion.value, [...jobMap.values()]));
export const nodes = computed<readonly NodeRow[]>(
  () => (nodesVersion.value, [...nodeMap.values()].sort((a, b) => byName(a.name, b.name))),
);
export const namespaces = computed(() => {
  const found = new Set([...(me.value?.namespaces ?? []), ...jobs.value.map((job) => job.namespace)]);
  return [...found].sort();
});

export const job = (key: string): JobRow | undefined => (jobsVersion.value, jobMap.get(key));
export const position = (): string => (epoch ? `${epoch}:${seq}` : "");
export const sequence = (): number => seq;

export function replaceAll(snapshot: Snapshot): void {
  epoch = snapshot.epoch;
  seq = snapshot.seq;
  jobMap.clear();
  nodeMap.clear();
  for (const row of snapshot.jobs) jobMap.set(keyOf(row), row);
  for (const row of snapshot.nodes) nodeMap.set(row.name, row);
  jobsVersion.value++;
  nodesVersion.value++;
}

export function apply(delta: Delta): void {
  if (delta.seq <= seq) return;
  seq = delta.seq;
  for (const row of delta.jobs) jobMap.set(keyOf(row), sharing(row, jobMap.get(keyOf(row))));
  for (const row of delta.goneJobs) jobMap.delete(keyOf(row));
  for (const row of delta.nodes) nodeMap.set(row.name, sharing(row, nodeMap.get(row.name)));
  for (const name of delta.goneNodes) nodeMap.delete(name);
  if (delta.jobs.length || delta.goneJobs.length) jobsVersion.value++;
  if (delta.nodes.length || delta.goneNodes.length) nodesVersion.value++;
}

// The new value with what is equal to the earlier one replaced by that. The rows of a snapshot share their texts, those
// of deltas do not: without this, a tab grows by half until each row has changed once.
function sharing<T>(value: T, before: T | undefined): T {
  if (before === undefined) return value;
  // Equal texts are still two texts in memory.
  if (value === before) return before;
  if (typeof value !== "object" || typeof before !== "object" || !value || !before) return value;
  let equal = !Array.isArray(value) || (Array.isArray(before) && value.length === before.length);
  for (const name of Object.keys(value) as (keyof T)[]) {
    value[name] = sharing(value[name], before[name]);
    equal &&= value[name] === before[name];
  }
  return equal ? before : value;
}

export function forget(): void {
  me.value = null;
  epoch = "";
  seq = -1;
  jobMap.clear();
  nodeMap.clear();
  jobsVersion.value++;
  nodesVersion.value++;
}

const collator = new Intl.Collator("en", { numeric: true });
export const byName = (a: string, b: string): number => collator.compare(a, b);
