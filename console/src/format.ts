// Numbers and times as people read them.
import { signal } from "@preact/signals";
import { language } from "./preferences";
import { t } from "./texts";

export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 1000);

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return t("seconds", whole);
  if (whole < 3600) return t("minutes", Math.round(whole / 60));
  const minutes = Math.round(whole / 60);
  if (whole < 48 * 3600) return minutes % 60 ? t("hoursMinutes", Math.floor(minutes / 60), minutes % 60) : t("wholeHours", minutes / 60);
  return t("days", Math.round(whole / 86_400));
}

export const secondsSince = (time: string): number => (now.value - Date.parse(time)) / 1000;
export const secondsUntil = (time: string): number => -secondsSince(time);
export const age = (time: string | null): string => (time ? t("ago", duration(secondsSince(time))) : "–");

export function inTime(time: string): string {
  const left = secondsUntil(time);
  return left <= 0 ? t("anyMoment") : t("in", duration(left));
}

export function moment(time: string): string {
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  return new Date(time).toLocaleString(locale, { dateStyle: "medium", timeStyle: "medium" });
}

// A sentence of the API with its times as people here read them.
export const withLocalTimes = (sentence: string): string => sentence.replace(/\d{4}-\d\d-\d\dT[\d:]{8}Z/g, moment);

export const clock = (time: number): string =>
  new Date(time).toLocaleTimeString(language.value === "zh" ? "zh-CN" : "en-GB");

// A time on an axis of so many hours: within a day, the day is known.
export const axisTime = (time: number, hours: number): string =>
  new Date(time).toLocaleString(language.value === "zh" ? "zh-CN" : "en-GB", hours <= 24 ? { timeStyle: "short" } : { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const gib = (mib: number): string => `${(mib / 1024).toFixed(mib % 1024 === 0 ? 0 : 1)} GiB`;
export const percent = (part: number): string => `${Math.round(part * 100)} %`;
const locale = (): string => (language.value === "zh" ? "zh-CN" : "en-GB");
// A number with so many digits after the point at most.
export const number = (value: number, digits = 1): string => value.toLocaleString(locale(), { maximumFractionDigits: digits });
const WHOLE_FROM = 1000;
// Cents matter in small amounts alone.
export const money = (value: number, currency: string): string =>
  value.toLocaleString(locale(), { style: "currency", currency, maximumFractionDigits: value >= WHOLE_FROM ? 0 : 2 });
// Sums of shares, which have fractions.
export const gpus = (count: number): string => String(Math.round(count * 10) / 10);
// Text that a shell takes as one word.
export const quoted = (word: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
