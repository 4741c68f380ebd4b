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

const TEMPLATE = (request: Request): JobSpec["template"] => ({
  spec: {
    restartPolicy: "Never",
    containers: [
      {
        name: "main",
        ...(request.image ? { image: request.image } : {}),
        ...(request.command ? { command: ["sh", "-c", request.command] } : {}),
      },
    ],
  },
});

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
  if (!base.template || request.image || request.command) spec.template = TEMPLATE(request);
  return withoutDefaults(spec);
}

// The API server fills in what is left out, and null is often not allowed.
function withoutDefaults(spec: Partial<JobSpec>): Partial<JobSpec> {
  return Object.fromEntries(
    Object.entries(spec).filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0)),
  ) as Partial<JobSpec>;
}

export function gbatchLine(request: Request, namespace: string): string {
  const words = ["gbatch", "-g", quoted(request.gpu.trim() || "0")];
  if (request.workers && request.workers !== "1") words.push("-N", request.workers);
  if (request.priority) words.push("-p", request.priority);
  if (request.mode) words.push("--mode", request.mode);
  if (request.limit) words.push("-t", String(Math.max(1, Math.round(secondsOf(request.limit) / 60))));
  if (request.image) words.push("--image", quoted(request.image));
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
