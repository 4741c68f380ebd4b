// The frame of every page: navigation, the state of the link, sign-in.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "./api/client";
import { clock } from "./format";
import { acceptOffer, arrivalProblem, declineOffer, enterCode, offer, signIn, signInAtProvider, signOut } from "./live/session";
import { currentAt, deniedWhy, link, me, provider } from "./live/store";
import { AskPage } from "./pages/ask";
import { JobPage } from "./pages/job/index";
import { MapPage } from "./pages/map/index";
import { MePage } from "./pages/me";
import { NowPage } from "./pages/now/index";
import { PlanPage } from "./pages/plan/index";
import { QueuePage } from "./pages/queue/index";
import { WastePage } from "./pages/waste";
import { Field } from "./parts/basics";
import { type Language, language, type Theme, theme } from "./preferences";
import { pathTo, place } from "./router";
import { t, type Text } from "./texts";

const PAGES: Record<string, () => preact.JSX.Element> = {
  now: NowPage,
  queue: QueuePage,
  ask: AskPage,
  plan: PlanPage,
  map: MapPage,
  waste: WastePage,
  me: MePage,
};

export function Shell() {
  const { page } = place.value;
  const title = page === "job" ? place.value.rest.join("/") : page in PAGES ? t(page as Text) : t("noPage");
  useEffect(() => {
    document.title = `${title} · Dovetail`;
  }, [title]);
  return (
    <>
      <a class="skip" href="#main">
        {t("skip")}
      </a>
      <header>
        <span class="brand">Dovetail</span>
        <nav aria-label={t("pages")}>
          {Object.keys(PAGES).map((name) => (
            <a key={name} href={pathTo(name)} aria-current={page === name ? "page" : undefined}>
              {t(name as Text)}
            </a>
          ))}
        </nav>
        <LinkState />
        <Preferences />
      </header>
      <Banner />
      <main id="main" tabIndex={-1}>
        <Content />
      </main>
    </>
  );
}

function Content() {
  const { page, rest } = place.value;
  if (offer.value) return <Offered />;
  if (link.value === "signedOut") return <SignIn />;
  if (link.value === "denied") return <p>{t("denied", deniedWhy.value)}</p>;
  if (!me.value) return <p>{link.value === "away" ? "" : t("starting")}</p>;
  if (page === "job") return <JobPage key={rest.join("/")} />;
  const Page = PAGES[page];
  return Page ? <Page /> : <h1>{t("noPage")}</h1>;
}

// The age of what the page shows.
function LinkState() {
  const at = currentAt.value ? t("asOf", clock(currentAt.value)) : "";
  if (link.value !== "live" && link.value !== "polling") return <span class="link-state">{at}</span>;
  return (
    <span class={`link-state is-${link.value}`}>
      <span aria-hidden="true">{link.value === "live" ? "◉" : "◌"}</span> {t(link.value)}, {at}
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

function Preferences() {
  return (
    <div class="preferences">
      <select aria-label={t("language")} value={language.value} onChange={(event) => (language.value = event.currentTarget.value as Language)}>
        <option value="en">English</option>
        <option value="zh">简体中文</option>
      </select>
      <select aria-label={t("theme")} value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        <option value="auto">{t("themeAuto")}</option>
        <option value="light">{t("themeLight")}</option>
        <option value="dark">{t("themeDark")}</option>
      </select>
      {me.value && (
        <button type="button" onClick={() => void signOut()}>
          {t("signOut")}
        </button>
      )}
    </div>
  );
}

async function attempt(signingIn: Promise<void>): Promise<void> {
  arrivalProblem.value = "";
  try {
    await signingIn;
  } catch (error) {
    arrivalProblem.value = error instanceof ApiError ? error.message : String(error);
  }
}

// What a link would do, which anybody can have sent.
function Offered() {
  const asked = offer.value;
  if (!asked) return null;
  const { username, signedInAs } = asked;
  return (
    <section class="sign-in">
      <h1>{signedInAs ? t("offerInstead", signedInAs, username) : t("offer", username)}</h1>
      <p>{t("offerWhy", username)}</p>
      <p role="alert" class="problem">
        {arrivalProblem.value}
      </p>
      <p>
        <button type="button" onClick={() => void attempt(acceptOffer())}>
          {t("offerYes", username)}
        </button>{" "}
        <button type="button" onClick={declineOffer}>
          {signedInAs ? t("offerStay", signedInAs) : t("offerNo")}
        </button>
      </p>
    </section>
  );
}

function SignIn() {
  const code = useSignal("");
  const token = useSignal("");
  const submits = (signingIn: () => Promise<void>) => (event: Event) => {
    event.preventDefault();
    void attempt(signingIn());
  };
  return (
    <section class="sign-in">
      <h1>{t("signIn")}</h1>
      <p role="alert" class="problem">
        {arrivalProblem.value}
      </p>
      {provider.value && (
        <p>
          <button type="button" onClick={() => void attempt(signInAtProvider())}>
            {t("signInAt", provider.value)}
          </button>
        </p>
      )}
      <p>{t(provider.value ? "signInElse" : "signInHow")}</p>
      <form onSubmit={submits(() => enterCode(code.value))}>
        <Field label={t("code")} hint={t("codeHow")}>
          <input type="text" autocomplete="off" spellcheck={false} required value={code.value} onInput={(event) => (code.value = event.currentTarget.value)} />
        </Field>
        <button type="submit">{t("enterCode")}</button>
      </form>
      <form onSubmit={submits(() => signIn(token.value.trim()))}>
        <Field label={t("token")} hint={t("tokenHow")}>
          <input type="password" autocomplete="off" spellcheck={false} required value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
        </Field>
        <button type="submit">{t("signIn")}</button>
      </form>
    </section>
  );
}
