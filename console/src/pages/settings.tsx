// Settings: language and colours, and who the API server says I am.
import licence from "@fontsource-variable/inter/LICENSE?url";
import { Button, ButtonLink } from "../design/button";
import { Card, Facts } from "../design/card";
import { Command } from "../design/command";
import { Field, Select } from "../design/field";
import { PageHead } from "../design/page";
import { inTime } from "../format";
import { signOut } from "../live/session";
import { me } from "../live/store";
import { type Language, language, type Theme, theme } from "../preferences";
import { pathTo } from "../router";
import { shortcutsOpen } from "../shell/open";
import { t } from "../texts";

export function SettingsPage() {
  const who = me.value;
  return (
    <>
      <PageHead title={t("settings")} />
      <div class="halves">
        <Card title={t("appearance")}>
          <div class="stack">
            <Field label={t("language")}>
              <Select value={language.value} choices={[["en", "English"], ["zh", "简体中文"]]} onChoose={(value) => (language.value = value as Language)} />
            </Field>
            <Field label={t("theme")}>
              <Select value={theme.value} choices={[["auto", t("themeAuto")], ["light", t("themeLight")], ["dark", t("themeDark")]]} onChoose={(value) => (theme.value = value as Theme)} />
            </Field>
            <div class="row">
              <Button onClick={() => (shortcutsOpen.value = true)}>{t("shortcuts")}</Button>
              <ButtonLink href={pathTo("design")}>{t("design")}</ButtonLink>
              <ButtonLink href={licence} download="inter-licence.txt">{t("fontLicence")}</ButtonLink>
            </div>
          </div>
        </Card>
        {who && (
          <Card title={t("account", who.username)} actions={<Button small onClick={() => void signOut()}>{t("signOut")}</Button>}>
            <div class="stack">
              <Facts facts={[[t("whoAmI"), who.username], [t("groups"), who.groups.join(", ")]]} />
              <p>{who.everywhere ? t("seesAll") : t("seesSome")}</p>
              {!who.everywhere && <ul class="bullets">{who.namespaces.map((name) => <li key={name}>{name}</li>)}</ul>}
              {who.expiresAt && <p class="muted">{t("tokenEnds", inTime(who.expiresAt))}</p>}
              <Command lines={["kubectl auth whoami", "kubectl auth can-i --list"]} />
            </div>
          </Card>
        )}
      </div>
    </>
  );
}
