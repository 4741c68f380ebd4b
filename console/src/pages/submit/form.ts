// What is typed into the form: it is in the page's address, and each field says what is wrong with its own value.
import type { JobSpec } from "../../api/types";
import { namespaces, nodes } from "../../live/store";
import { arrayOf, numberOf, type Request, RequestProblem, secondsOf, variableOf, volumeOf } from "../../requests";
import { place } from "../../router";
import { t } from "../../texts";

export type FieldName = "name" | "image" | "command" | "gpu" | "workers" | "limit" | "priority" | "env" | "volumes" | "array" | "namespace";

export const value = (name: string): string => place.value.query.get(name) ?? "";
export const values = (name: string): readonly string[] => place.value.query.getAll(name);

export const namespaceOf = (): string => value("namespace") || (namespaces.value[0] ?? "default");

// Lines that are still empty count for nothing.
const filled = (lines: readonly string[], empty: string): readonly string[] => lines.filter((line) => line !== empty);
export const NO_VARIABLE = "=";
export const NO_VOLUME = ":";

export const requestOf = (): Request => ({
  gpu: value("gpu"),
  workers: value("workers"),
  priority: value("priority"),
  mode: value("mode"),
  limit: value("limit"),
  image: value("image").trim(),
  command: value("command"),
  env: filled(values("env"), NO_VARIABLE),
  volumes: filled(values("volume"), NO_VOLUME),
  array: value("array"),
  after: values("after"),
});

// Simulated nodes and one's own machine run no images.
export const needsImage = (): boolean => nodes.value.some((node) => node.runs === "Containers");

const NAME = /^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$/;

function problemOf(check: () => unknown): string {
  try {
    check();
    return "";
  } catch (error) {
    if (error instanceof RequestProblem) return error.message;
    throw error;
  }
}

// What each field's value has wrong; empty where nothing is. `gpu` is the queue's own judgement.
export function problemsOf(request: Request, base: Partial<JobSpec>): Record<FieldName, string> {
  const cloned = base.template !== undefined;
  const name = value("name");
  return {
    namespace: "",
    name: name && !NAME.test(name) ? t("badName", name) : "",
    image: needsImage() && !cloned && !request.image ? t("noImage") : /\s/.test(request.image ?? "") ? t("badImage", request.image ?? "") : "",
    command: !cloned && !request.command && !request.image ? t("noCommand") : "",
    gpu: request.gpu || base.gpu || base.resources ? "" : t("noGpu"),
    workers: problemOf(() => request.workers && numberOf(t("workers"), request.workers, 1, 1024)),
    priority: problemOf(() => request.priority && numberOf(t("priority"), request.priority, 0, 255)),
    limit: problemOf(() => request.limit && secondsOf(request.limit)),
    env: problemOf(() => request.env?.map(variableOf)),
    volumes: problemOf(() => request.volumes?.map(volumeOf)),
    array: problemOf(() => request.array && arrayOf(request.array)),
  };
}

// The request without what is not right yet, so that the queue answers while the rest is typed.
export function soundPart(request: Request, problems: Record<FieldName, string>): Request {
  const sound: Record<string, unknown> = { ...request };
  for (const name of ["workers", "priority", "limit", "env", "volumes", "array"] as const) if (problems[name]) delete sound[name];
  return sound as unknown as Request;
}
