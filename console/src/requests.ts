// Requests as a person types them, as a GPUJob's spec, as YAML, and as a command line. Pure.
import type { JobSpec } from "./api/types";
import { quoted } from "./format";
import { t } from "./texts";

// What is typed is judged after so long a pause.
export const TYPING_MS = 300;

export interface Request {
  gpu: string;
  workers?: string;
  priority?: string;
  mode?: string;
  limit?: string;
  image?: string;
  command?: string;
  // NAME=VALUE each.
  env?: readonly string[];
  // CLAIM:/PATH or CLAIM:/PATH:ro each, as gbatch takes them.
  volumes?: readonly string[];
  // Indexes such as 0-15, with %4 for four at a time.
  array?: string;
  // Names of jobs that must have succeeded before.
  after?: readonly string[];
}

export class RequestProblem extends Error {}

const SECONDS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

export function secondsOf(text: string): number {
  const found = /^([1-9]\d{0,7})([smhd])$/.exec(text.trim());
  if (!found) throw new RequestProblem(t("badLimit", text));
  return Number(found[1]) * (SECONDS[found[2] as string] ?? 1);
}

export function numberOf(label: string, text: string, least: number, most: number): number {
  const number = Number(text);
  if (!/^\d+$/.test(text.trim()) || number < least || number > most) throw new RequestProblem(t("badNumber", label, text, least, most));
  return number;
}

// A variable of the environment, from NAME=VALUE.
export function variableOf(text: string): { name: string; value: string } {
  const [name = "", ...rest] = text.split("=");
  if (!/^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name)) throw new RequestProblem(t("badVariable", name));
  return { name, value: rest.join("=") };
}

interface Mounted {
  claim: string;
  path: string;
  readOnly: boolean;
}

export function volumeOf(text: string): Mounted {
  const found = /^([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?):(\/[^:]+?)(:ro|:rw)?$/.exec(text);
  if (!found) throw new RequestProblem(t("badVolume", text));
  return { claim: found[1] as string, path: found[2] as string, readOnly: found[3] === ":ro" };
}

export function arrayOf(text: string): NonNullable<JobSpec["array"]> {
  const found = /^(\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*)(?:%([1-9]\d*))?$/.exec(text.trim());
  if (!found) throw new RequestProblem(t("badArray", text));
  return { indexes: found[1] as string, parallelism: found[2] ? Number(found[2]) : null };
}

const runs = (request: Request): boolean =>
  Boolean(request.image || request.command || request.env?.length || request.volumes?.length);

// The first container of a cloned template is changed; without one, it is the only container.
function templateOf(request: Request, base: JobSpec["template"] | undefined): JobSpec["template"] {
  const spec = base?.spec ?? { restartPolicy: "Never", containers: [{ name: "main" }] };
  const [first = { name: "main" }, ...others] = spec.containers ?? [];
  const mounts = (request.volumes ?? []).map(volumeOf);
  const claims = [...new Set(mounts.map((each) => each.claim))];
  const nameOf = (claim: string) => `volume-${claims.indexOf(claim)}`;
  const container = {
    ...first,
    ...(request.image ? { image: request.image } : {}),
    ...(request.command ? { command: ["sh", "-c", request.command] } : {}),
    ...(request.env?.length ? { env: request.env.map(variableOf) } : {}),
    ...(mounts.length ? { volumeMounts: mounts.map(({ claim, path, readOnly }) => ({ name: nameOf(claim), mountPath: path, ...(readOnly ? { readOnly } : {}) })) } : {}),
  };
  const volumes = claims.map((claim) => ({ name: nameOf(claim), persistentVolumeClaim: { claimName: claim } }));
  return { ...base, spec: { ...spec, containers: [container, ...others], ...(volumes.length ? { volumes } : {}) } };
}

// The spec of a request; what it does not say comes from `base`, the spec of a job that is cloned.
export function specOf(request: Request, base: Partial<JobSpec> = {}): Partial<JobSpec> {
  const { cancel: _cancel, suspend: _suspend, resources, ...kept } = base;
  const gpu = request.gpu.trim();
  const spec: Partial<JobSpec> = { ...kept };
  if (gpu) spec.gpu = /^\d+$/.test(gpu) ? Number(gpu) : gpu;
  else if (resources) spec.resources = resources;
  if (request.workers) spec.workers = numberOf(t("workers"), request.workers, 1, 1024);
  if (request.priority) spec.priority = numberOf(t("priority"), request.priority, 0, 255);
  if (request.mode) spec.mode = request.mode as NonNullable<JobSpec["mode"]>;
  if (request.limit) spec.activeDeadlineSeconds = secondsOf(request.limit);
  if (request.array) spec.array = withoutDefaults(arrayOf(request.array));
  if (request.after?.length) spec.dependencies = request.after.map((name) => ({ name, condition: "Succeeded" }));
  if (!base.template || runs(request)) spec.template = templateOf(request, base.template);
  return withoutDefaults(spec);
}

// The API server fills in what is left out, and null is often not allowed.
const withoutDefaults = <T extends object>(value: T): T =>
  Object.fromEntries(Object.entries(value).filter(([, each]) => each !== null && !(Array.isArray(each) && each.length === 0))) as T;

// The same as a line of gbatch, which needs a command: without one, the image's own program runs.
export function gbatchLine(request: Request, namespace: string, name = ""): string {
  const words = ["gbatch", "-g", quoted(request.gpu.trim() || "0")];
  if (name) words.push("-J", quoted(name));
  if (request.workers && request.workers !== "1") words.push("-N", request.workers);
  if (request.priority) words.push("-p", request.priority);
  if (request.mode) words.push("--mode", request.mode);
  if (request.limit) words.push("-t", String(Math.max(1, Math.round(secondsOf(request.limit) / 60))));
  if (request.array) words.push("--array", quoted(request.array.trim()));
  if (request.after?.length) words.push(request.after.length > 1 ? "--depends-on-all" : "-d", quoted(request.after.join(",")));
  if (request.image) words.push("--image", quoted(request.image));
  for (const each of request.env ?? []) words.push("--env", quoted(each));
  for (const each of request.volumes ?? []) words.push("--volume", quoted(each));
  words.push("--namespace", quoted(namespace), quoted(request.command || "true"));
  return words.join(" ");
}

const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./-]*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n"]);

// JSON's values as YAML: text that could be read as something else is quoted, as in JSON.
export function yaml(value: unknown, indent = ""): string {
  if (Array.isArray(value)) {
    if (!value.length) return " []\n";
    return `\n${value.map((each) => `${indent}-${nested(each, `${indent}  `, true)}`).join("")}`;
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return " {}\n";
    return `\n${entries.map(([name, each]) => `${indent}${scalar(name)}:${nested(each, `${indent}  `)}`).join("")}`;
  }
  return ` ${scalar(value)}\n`;
}

function nested(value: unknown, indent: string, inList = false): string {
  const text = yaml(value, indent);
  // The first line of a list's item goes on the line of its dash.
  return inList && text.startsWith("\n") ? ` ${text.slice(1 + indent.length)}` : text;
}

const scalar = (value: unknown): string =>
  typeof value === "string" && PLAIN.test(value) && !WORDS.has(value.toLowerCase()) ? value : JSON.stringify(value);

export const manifest = (namespace: string, name: string, spec: Partial<JobSpec>): string =>
  yaml({ apiVersion: "dovetail.dev/v1beta1", kind: "GPUJob", metadata: { name, namespace }, spec }).trimStart();
