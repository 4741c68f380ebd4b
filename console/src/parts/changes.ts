// The changes of jobs that people make, as requests and as command lines.
import { jobPath, patch, post } from "../api/client";
import type { JobRow } from "../api/types";

// Actions without a value.
export type Simple = "hold" | "release" | "cancel";

export async function apply(job: JobRow, action: Simple): Promise<void> {
  const path = jobPath(job.namespace, job.name);
  if (action === "cancel") await post(`${path}/cancel`, undefined);
  else await patch(path, { held: action === "hold" });
}

export const changePriority = (job: JobRow, priority: number): Promise<unknown> => patch(jobPath(job.namespace, job.name), { priority });

export function commandOf(job: JobRow, action: Simple): string {
  const words = action === "cancel" ? "gcancel" : `gjob ${action}`;
  return `${words} ${job.number ?? job.name} --namespace ${job.namespace}`;
}
