// What stands in the frame: the page of the address, or why there is none; and the door for those who are signed out.
import { Ban, FileQuestion, LogIn } from "lucide";
import { useSignal } from "@preact/signals";
import { ApiError } from "../api/client";
import { Button, ButtonLink } from "../design/button";
import { Card } from "../design/card";
import { Empty, Skeleton } from "../design/empty";
import { Field, Input, Select } from "../design/field";
import { acceptOffer, arrivalProblem, declineOffer, enterCode, offer, signIn, signInAtProvider } from "../live/session";
import { deniedWhy, job as jobOf, jobs, link, me, provider } from "../live/store";
import { JobPage } from "../pages/job/index";
import { NodePage } from "../pages/nodes/node";
import { called, phaseName, WAITING } from "../parts/basics";
import { type Language, language } from "../preferences";
import { pathTo, place } from "../router";
import { t } from "../texts";
import { Brand } from "./brand";
import { isPage, PAGES } from "./pages";

// The page's title with its state, so that a tab in the background tells it.
export function titleOf(): string {
  const { page, rest } = place.value;
  if (offer.value || link.value === "signedOut") return t("signIn");
  if (page === "job") {
    const row = jobOf(rest.join("/"));
    return row ? `${phaseName(row.phase)}: ${called(row)}` : rest.join("/");
  }
  if (page === "node") return rest.join("/");
  if (page === "jobs" || page === "overview") {
    const waiting = jobs.value.filter((row) => WAITING.has(row.phase)).length;
    return waiting ? `(${waiting}) ${t(page)}` : t(page);
  }
  return isPage(page) ? t(page) : t("noPage");
}

export function Content() {
  const { page, rest } = place.value;
  if (link.value === "denied") return <Empty page icon={Ban} title={t("deniedTitle")} text={t("denied", deniedWhy.value)} />;
  if (!me.value) return link.value === "away" ? null : <Skeleton lines={6} />;
  if (page === "job") return <JobPage key={rest.join("/")} />;
  if (page === "node") return <NodePage key={rest.join("/")} />;
  if (!isPage(page)) {
    return <Empty page icon={FileQuestion} title={t("noPage")} text={t("noPageText", page)} actions={<ButtonLink href={pathTo("overview")}>{t("toOverview")}</ButtonLink>} />;
  }
  const Page = PAGES[page].draw;
  return <Page />;
}

async function attempt(signingIn: Promise<void>): Promise<void> {
  arrivalProblem.value = "";
  try {
    await signingIn;
  } catch (error) {
    arrivalProblem.value = error instanceof ApiError ? error.message : String(error);
  }
}

export const Door = () => (
  <main class="door" id="main">
    <section>
      <Brand />
      {offer.value ? <Offered /> : <SignIn />}
      <Select label={t("language")} value={language.value} choices={[["en", "English"], ["zh", "简体中文"]]} onChoose={(value) => (language.value = value as Language)} />
    </section>
  </main>
);

// Text with its commands, between backticks, as code.
const Marked = ({ text }: { text: string }) => (
  <>
    {text.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}
  </>
);

const Problem = () => (
  <p role="alert" class="problem">
    {arrivalProblem.value}
  </p>
);

// What a link would do, which anybody can have sent.
function Offered() {
  const asked = offer.value;
  if (!asked) return null;
  const { username, signedInAs } = asked;
  return (
    <Card>
      <div class="stack">
        <h1>{signedInAs ? t("offerInstead", signedInAs, username) : t("offer", username)}</h1>
        <p class="muted"><Marked text={t("offerWhy", username)} /></p>
        <Problem />
        <div class="row">
          <Button kind="primary" onClick={() => void attempt(acceptOffer())}>
            {t("offerYes", username)}
          </Button>
          <Button onClick={declineOffer}>{signedInAs ? t("offerStay", signedInAs) : t("offerNo")}</Button>
        </div>
      </div>
    </Card>
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
    <>
      <div class="stack tight">
        <h1>{t("signIn")}</h1>
        <p class="muted"><Marked text={t(provider.value ? "signInElse" : "signInHow")} /></p>
      </div>
      <Problem />
      {provider.value && (
        <>
          <Button kind="primary" icon={LogIn} onClick={() => void attempt(signInAtProvider())}>
            {t("signInAt", provider.value)}
          </Button>
          <span class="or" aria-hidden="true">{t("or")}</span>
        </>
      )}
      <form class="stack" onSubmit={submits(() => enterCode(code.value))}>
        <Field label={t("code")} hint={t("codeHow")}>
          <Input required value={code.value} onText={(text) => (code.value = text)} />
        </Field>
        <Button type="submit" kind={provider.value ? "secondary" : "primary"}>{t("enterCode")}</Button>
      </form>
      <span class="or" aria-hidden="true">{t("or")}</span>
      <form class="stack" onSubmit={submits(() => signIn(token.value.trim()))}>
        <Field label={t("token")} hint={t("tokenHow")}>
          <Input secret required value={token.value} onText={(text) => (token.value = text)} />
        </Field>
        <Button type="submit">{t("signIn")}</Button>
      </form>
    </>
  );
}
