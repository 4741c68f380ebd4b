// The frame of every page: navigation, the state of the link, the command palette and the shortcuts.
import { Ellipsis, Plus, Search } from "lucide";
import { useEffect } from "preact/hooks";
import { ButtonLink } from "../design/button";
import { Icon } from "../design/icon";
import { Menu } from "../design/menu";
import { Toasts } from "../design/toast";
import { clock } from "../format";
import { offer } from "../live/session";
import { currentAt, jobs, link, me } from "../live/store";
import { phaseName, WAITING } from "../parts/basics";
import { go, pathTo, place } from "../router";
import { t } from "../texts";
import { Account } from "./account";
import { Content, Door, titleOf } from "./content";
import { Brand } from "./brand";
import { paletteOpen } from "./open";
import { mainPages, morePages, PAGES, type PageName } from "./pages";
import { Palette } from "./palette";
import { Shortcuts, startShortcuts } from "./shortcuts";

export function Shell() {
  const title = titleOf();
  useEffect(() => {
    document.title = `${title} · Dovetail`;
  }, [title]);
  useEffect(startShortcuts, []);
  if (offer.value || link.value === "signedOut") return <Door />;
  return (
    <>
      <a class="skip" href="#main">
        {t("skip")}
      </a>
      <div class="shell">
        <Sidebar />
        <div>
          <Topbar />
          <Banner />
          <main id="main" class="page" tabIndex={-1}>
            <Content />
          </main>
        </div>
        <BottomBar />
      </div>
      {paletteOpen.value && <Palette />}
      <Shortcuts />
      <Toasts />
    </>
  );
}

// A job's page belongs to Jobs, a node's page to Nodes.
const current = (name: PageName): boolean => {
  const { page } = place.value;
  return name === (page === "job" ? "jobs" : page === "node" ? "nodes" : page);
};

function NavLink({ name }: { name: PageName }) {
  const waiting = name === "jobs" ? jobs.value.filter((job) => WAITING.has(job.phase)).length : 0;
  return (
    <a class="nav-link" href={pathTo(name)} aria-current={current(name) ? "page" : undefined}>
      <Icon of={PAGES[name].icon} /> {t(name)}
      {waiting > 0 && (
        <span class="count" title={`${phaseName("Queued")}: ${waiting}`} aria-hidden="true">
          {waiting}
        </span>
      )}
    </a>
  );
}

const Sidebar = () => (
  <aside class="sidebar" aria-label={t("navigation")}>
    <Brand />
    <nav aria-label={t("pages")}>
      {[...mainPages, ...morePages].map((name) => (
        <NavLink key={name} name={name} />
      ))}
    </nav>
    {me.value && <Account />}
  </aside>
);

const Topbar = () => (
  <header class="topbar">
    <Brand />
    <button type="button" class="palette-button" onClick={() => (paletteOpen.value = true)}>
      <Icon of={Search} /> <span class="clip">{t("paletteHint")}</span> <kbd aria-hidden="true">Ctrl K</kbd>
    </button>
    <LinkState />
    <ButtonLink href={pathTo("submit")} kind="primary" icon={Plus}>
      {t("newJob")}
    </ButtonLink>
  </header>
);

const BottomBar = () => (
  <nav class="bottom-bar" aria-label={t("pagesShort")}>
    {(["overview", "jobs", "submit", "nodes"] as const).map((name) => (
      <a key={name} href={pathTo(name)} aria-current={current(name) ? "page" : undefined}>
        <Icon of={PAGES[name].icon} /> {t(name)}
      </a>
    ))}
    <Menu
      label={t("more")}
      look=""
      items={(["map", "plan", "quotas", "usage", "waste", "settings"] as const).map((name) => ({ id: name, text: t(name), icon: PAGES[name].icon, onSelect: () => go(pathTo(name)) }))}
    >
      <Icon of={Ellipsis} /> {t("more")}
    </Menu>
  </nav>
);

// The age of what the page shows.
function LinkState() {
  const at = currentAt.value ? t("asOf", clock(currentAt.value)) : "";
  const linked = link.value === "live" || link.value === "polling";
  return (
    <span class={linked ? `link-state is-${link.value}` : "link-state"}>
      <span class="dot" aria-hidden="true" />
      {linked && t(link.value as "live" | "polling")}
      <span class="at">{at}</span>
    </span>
  );
}

function Banner() {
  const away = link.value === "away";
  const text = away ? t("away", currentAt.value ? clock(currentAt.value) : "–") : link.value === "polling" ? t("pollingWhy") : "";
  return (
    <div role="status" class={text ? `banner banner-${link.value}` : ""}>
      {text}
    </div>
  );
}
