// Requests to the gateway. The session is a cookie that scripts cannot read.

import { messageOf } from "../reasons";
import { RequestProblem } from "../requests";
import { t } from "../texts";
import type { Problem } from "./types";

// The gateway refuses changes without it: a form of another site cannot set it.
const HEADER = { "X-Dovetail-Console": "1" };

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly fields: readonly { field: string; message: string }[] = [],
  ) {
    super(message);
  }
}

export class UnreachableError extends Error {}

// Whether the message is a sentence for a person: the gateway's, or that about what was typed.
export const isSaid = (error: unknown): error is ApiError | RequestProblem => error instanceof ApiError || error instanceof RequestProblem;

// What a person reads of a failure.
export const failure = (error: unknown): string => (isSaid(error) ? error.message : t("failed", String(error)));

interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const reads = method === "GET";
  const headers: Record<string, string> = { ...(reads ? {} : HEADER), ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal: options.signal ?? null,
      // An answer that the page's head has asked for is one that takes neither a header nor a mode of the cache. The
      // gateway says that none is to be kept.
      cache: reads ? "default" : "no-store",
      credentials: "same-origin",
      body: options.body === undefined ? null : JSON.stringify(options.body),
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new UnreachableError(String(error));
  }
  if (response.ok || response.status === 304) return response;
  throw await problem(response);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", path, signal ? { signal } : {})).json()) as T;
}

export async function post<T>(path: string, body: unknown, options: Options = {}): Promise<T> {
  return (await (await send("POST", path, { ...options, body })).json()) as T;
}

export async function patch<T>(path: string, body: unknown): Promise<T> {
  return (await (await send("PATCH", path, { body })).json()) as T;
}

export const jobPath = (namespace: string, name: string): string =>
  `/api/v3/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

async function problem(response: Response): Promise<ApiError> {
  try {
    const said = (await response.json()) as Partial<Problem>;
    const message = messageOf({ message: said.detail ?? response.statusText, details: said.details ?? [] });
    return new ApiError(response.status, said.reason ?? "", message, said.errors ?? []);
  } catch {
    return new ApiError(response.status, "", response.statusText);
  }
}
