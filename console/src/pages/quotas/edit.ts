// What is typed of a quota, as a merge patch of its spec and as a command line. Pure.
import type { QuotaRow } from "../../api/types";
import { quoted } from "../../format";
import { numberOf } from "../../requests";
import { t } from "../../texts";

const MOST_GPUS = 1_000_000;
const MOST_SHARES = 10_000;

// The fields as they are typed; empty is none.
export interface Typed {
  guaranteed: string;
  limit: string;
  shares: string;
  parent: string;
}

const text = (value: number | null): string => (value === null ? "" : String(value));

export const typedOf = (quota: QuotaRow): Typed => ({
  guaranteed: text(quota.guaranteed),
  limit: text(quota.gpusLimit),
  shares: text(quota.shares),
  parent: quota.parent ?? "",
});

interface Edit {
  spec: Record<string, unknown>;
  command: string;
}

// Only what differs from `before`; null where nothing does. Throws `RequestProblem`.
export function editOf(quota: string, before: Typed, typed: Typed): Edit | null {
  const spec: Record<string, unknown> = {};
  const words: string[] = [];
  const number = (name: "guaranteed" | "limit" | "shares", label: string, option: string, least: number, most: number): number | null | undefined => {
    const entered = typed[name].trim();
    const value = entered ? numberOf(label, entered, least, most) : null;
    if (entered === before[name]) return undefined;
    words.push(option, entered || "none");
    return value;
  };
  const guaranteed = number("guaranteed", t("guaranteedGpus"), "--guaranteed", 0, MOST_GPUS);
  if (guaranteed !== undefined) spec["guaranteed"] = { gpus: guaranteed };
  const limit = number("limit", t("limitGpus"), "--gpus", 0, MOST_GPUS);
  if (limit !== undefined) spec["limit"] = { gpus: limit };
  const shares = number("shares", t("shares"), "--shares", 1, MOST_SHARES);
  if (shares !== undefined) spec["shares"] = shares;
  if (typed.parent !== before.parent) {
    spec["parent"] = typed.parent || null;
    words.push("--parent", quoted(typed.parent || "none"));
  }
  return words.length ? { spec, command: ["dovetail quota set", quoted(quota), ...words].join(" ") } : null;
}
