// The texts of the console in the person's language. {0}, {1} … are filled in.
import { language } from "./preferences";
import { COMMON } from "./texts/common";
import { PAGES } from "./texts/pages";
import { PAST } from "./texts/past";

const TEXTS = { ...COMMON, ...PAGES, ...PAST };

export type Text = keyof typeof TEXTS;

export function t(key: Text, ...values: (string | number)[]): string {
  const text: string = TEXTS[key][language.value === "zh" ? 1 : 0];
  return text.replace(/\{(\d)\}/g, (_, index: string) => String(values[Number(index)] ?? ""));
}
