// The keys that work on every page, and the dialog that lists them.
import { Dialog } from "../design/overlay";
import { Facts } from "../design/card";
import { go, pathTo } from "../router";
import { t } from "../texts";
import { paletteOpen, shortcutsOpen } from "./open";
import { PAGES, type PageName } from "./pages";

// After `g`, the page's key must follow within this time.
const CHORD_MS = 1200;

const GONE_TO = (Object.keys(PAGES) as PageName[]).filter((name) => name !== "design");

// Whether the key is text for a field, and none of a shortcut.
function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function startShortcuts(): () => void {
  let chordUntil = 0;
  const press = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      paletteOpen.value = !paletteOpen.value;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const chord = Date.now() < chordUntil;
    chordUntil = 0;
    if (chord) {
      const page = GONE_TO.find((name) => PAGES[name].key === event.key);
      if (page) {
        event.preventDefault();
        go(pathTo(page));
      }
    } else if (event.key === "g") {
      chordUntil = Date.now() + CHORD_MS;
    } else if (event.key === "?") {
      event.preventDefault();
      shortcutsOpen.value = true;
    } else if (event.key === "/") {
      const search = document.querySelector<HTMLInputElement>("[data-search]");
      event.preventDefault();
      if (search) search.focus();
      else paletteOpen.value = true;
    } else if (event.key === "c") {
      event.preventDefault();
      go(pathTo("submit"));
    }
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

const Keys = ({ keys }: { keys: readonly string[] }) => (
  <span class="row">
    {keys.map((key) => (
      <kbd key={key}>{key}</kbd>
    ))}
  </span>
);

export function Shortcuts() {
  if (!shortcutsOpen.value) return null;
  return (
    <Dialog title={t("shortcuts")} onClose={() => (shortcutsOpen.value = false)}>
      <Facts
        facts={[
          [t("palette"), <Keys keys={["Ctrl", "K"]} />],
          [t("search"), <Keys keys={["/"]} />],
          [t("newJob"), <Keys keys={["c"]} />],
          [t("shortcuts"), <Keys keys={["?"]} />],
          ...GONE_TO.map((name) => [t(name), <Keys keys={["g", PAGES[name].key]} />] as const),
        ]}
      />
    </Dialog>
  );
}
