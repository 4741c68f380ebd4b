// Language and colours, kept in this browser. Nothing else is stored here.
import { effect, type Signal, signal } from "@preact/signals";

export type Language = "en" | "zh";
export type Theme = "auto" | "light" | "dark";

const stored = (name: string): string => {
  try {
    return localStorage.getItem(`dovetail-${name}`) ?? "";
  } catch {
    return "";
  }
};

const store = (name: string, value: string): void => {
  try {
    localStorage.setItem(`dovetail-${name}`, value);
  } catch {
    // A browser that keeps nothing shows the defaults next time.
  }
};

const firstLanguage = (): Language => {
  const kept = stored("language");
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.startsWith("zh") ? "zh" : "en";
};

const firstTheme = (): Theme => {
  const kept = stored("theme");
  return kept === "light" || kept === "dark" ? kept : "auto";
};

export const language = signal<Language>(firstLanguage());
export const theme = signal<Theme>(firstTheme());

effect(() => {
  document.documentElement.lang = language.value === "zh" ? "zh-Hans" : "en";
});
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

// Only what a person chose is stored: until then, the language is that of the browser, also when that changes.
function keep(name: string, choice: Signal<string>): void {
  const first = choice.peek();
  let chosen = false;
  effect(() => {
    chosen ||= choice.value !== first;
    if (chosen) store(name, choice.value);
  });
}

keep("language", language);
keep("theme", theme);
