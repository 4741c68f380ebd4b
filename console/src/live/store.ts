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
  for (const row of delta.jobs) jobMap.set(keyOf(row), row);
  for (const row of delta.goneJobs) jobMap.delete(keyOf(row));
  for (const row of delta.nodes) nodeMap.set(row.name, row);
  for (const name of delta.goneNodes) nodeMap.delete(name);
  if (delta.jobs.length || delta.goneJobs.length) jobsVersion.value++;
  if (delta.nodes.length || delta.goneNodes.length) nodesVersion.value++;
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
