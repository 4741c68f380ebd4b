// The clauses of messages in Simplified Chinese, by their codes. docs/reasons.md has the same codes in English, which is
// what the API says; a message with a clause that is not translated here shows so.
import type { JobRow } from "./api/types";
import { language } from "./preferences";
import { EXPLANATIONS } from "./reasons/explanations";
import { JOBS } from "./reasons/jobs";
import { PROBLEMS } from "./reasons/problems";
import type { Templates } from "./reasons/templates";
import { t } from "./texts";

const CLAUSES: Templates = { ...JOBS, ...EXPLANATIONS, ...PROBLEMS };
// What the gateway calls whom the reader may not see.
const HIDDEN = "another tenant";
const PLACE = /\{(\w+)\}/g;

type Said = Pick<JobRow, "message" | "details">;

// The clauses in Chinese; null where one is not translated, or in English.
function translated({ details }: Pick<Said, "details">): string | null {
  if (language.value !== "zh" || details.length === 0) return null;
  const said = details.map(({ code, parameters }) => CLAUSES[code]?.replace(PLACE, (_, name: string) => (parameters[name] ?? "").replaceAll(HIDDEN, t("anotherTenant"))));
  return said.includes(undefined) ? null : said.join("");
}

// What the API says, in the language of the console.
export const messageOf = (said: Said): string => translated(said) ?? said.message;

// Whether it is in the language of the console.
export const speaks = (said: Said): boolean => language.value === "en" || translated(said) !== null;
