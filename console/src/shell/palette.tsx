// The command palette: every page, job and node, and a few actions, found by typing.
import { Briefcase, CircleHelp, type IconNode, Languages, LogOut, MoonStar, Server } from "lucide";
import { useSignal } from "@preact/signals";
import * as combobox from "@zag-js/combobox";
import { normalizeProps, useMachine } from "@zag-js/preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Icon } from "../design/icon";
import { signOut } from "../live/session";
import { jobs, keyOf, nodes } from "../live/store";
import { called, FINISHED, phaseName } from "../parts/basics";
import { language, theme } from "../preferences";
import { go, pathTo } from "../router";
import { t } from "../texts";
import { paletteOpen, shortcutsOpen } from "./open";
import { PAGES, type PageName } from "./pages";

interface Entry {
  id: string;
  text: string;
  end: string;
  icon: IconNode;
  run: () => void;
}

const MOST_JOBS = 8;
const MOST_NODES = 6;

const pageEntries = (): Entry[] =>
  (Object.keys(PAGES) as PageName[])
    .filter((name) => name !== "design")
    .map((name) => ({ id: name, text: t(name), end: `g ${PAGES[name].key}`, icon: PAGES[name].icon, run: () => go(pathTo(name)) }));

const actionEntries = (): Entry[] => [
  { id: "theme", text: t("switchTheme"), end: "", icon: MoonStar, run: () => (theme.value = isDark() ? "light" : "dark") },
  { id: "language", text: language.value === "zh" ? "English" : "简体中文", end: "", icon: Languages, run: () => (language.value = language.value === "zh" ? "en" : "zh") },
  { id: "shortcuts", text: t("shortcuts"), end: "?", icon: CircleHelp, run: () => (shortcutsOpen.value = true) },
  { id: "signOut", text: t("signOut"), end: "", icon: LogOut, run: () => void signOut() },
];

const isDark = (): boolean => (theme.value === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme.value === "dark");

// What the text may mean; without a text, pages and actions.
function entriesOf(text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (...fields: string[]) => words.every((word) => fields.some((field) => field.toLowerCase().includes(word)));
  const fixed = [...pageEntries(), ...actionEntries()].filter((entry) => fits(entry.text));
  if (!words.length) return fixed;
  const found = jobs.value.filter((job) => fits(called(job), job.namespace, job.user)).sort((a, b) => Number(FINISHED.has(a.phase)) - Number(FINISHED.has(b.phase)) || (b.number ?? 0) - (a.number ?? 0));
  return [
    ...found.slice(0, MOST_JOBS).map((job) => ({ id: keyOf(job), text: called(job), end: `${job.namespace} · ${phaseName(job.phase)}`, icon: Briefcase, run: () => go(pathTo("job", job.namespace, job.name)) })),
    ...nodes.value.filter((node) => fits(node.name)).slice(0, MOST_NODES).map((node) => ({ id: `node ${node.name}`, text: node.name, end: t("node"), icon: Server, run: () => go(pathTo("node", node.name)) })),
    ...fixed,
  ];
}

export function Palette() {
  const typed = useSignal("");
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const entries = entriesOf(typed.value);
  const close = () => (paletteOpen.value = false);
  const service = useMachine(combobox.machine, {
    id: useId(),
    collection: combobox.collection({ items: entries, itemToValue: (each) => each.id, itemToString: (each) => each.text }),
    open: true,
    disableLayer: true,
    inputBehavior: "autohighlight",
    selectionBehavior: "clear",
    value: [],
    inputValue: typed.value,
    onInputValueChange: ({ inputValue, reason }) => {
      if (reason === "input-change") typed.value = inputValue;
    },
    onValueChange: ({ items }) => {
      close();
      (items[0] as Entry | undefined)?.run();
    },
  });
  const api = combobox.connect(service, normalizeProps);
  const press = (event: KeyboardEvent) => {
    // The list would take Escape for itself.
    if (event.key === "Escape") close();
    // Who types fast presses Enter before the list has marked its first entry.
    if (event.key === "Enter" && !event.isComposing && !entries.some((entry) => entry.id === api.highlightedValue)) {
      event.preventDefault();
      event.stopPropagation();
      close();
      entries[0]?.run();
    }
  };
  return (
    <dialog
      ref={dialog}
      class="panel palette"
      aria-label={t("palette")}
      onClose={close}
      onMouseDown={(event) => event.target === dialog.current && close()}
      onKeyDownCapture={press}
    >
      <div {...api.getRootProps()}>
        <div {...api.getControlProps()}>
          <input {...(api.getInputProps() as object)} class="input" aria-label={t("palette")} placeholder={t("paletteHint")} />
        </div>
        <ul {...api.getContentProps()} class="popup" aria-label={t("palette")}>
          {entries.map((entry) => (
            <li key={entry.id} {...api.getItemProps({ item: entry })} class="option">
              <Icon of={entry.icon} />
              <span class="clip">{entry.text}</span>
              <span class="end">{entry.end}</span>
            </li>
          ))}
          {entries.length === 0 && <li class="option muted" role="presentation">{t("noMatch")}</li>}
        </ul>
      </div>
      <footer aria-hidden="true">
        <span><kbd>↑</kbd> <kbd>↓</kbd> {t("paletteMove")}</span>
        <span><kbd>↵</kbd> {t("paletteOpen")}</span>
        <span><kbd>esc</kbd> {t("close")}</span>
      </footer>
    </dialog>
  );
}
