// Me: who the API server says I am, and what I may see.
import { inTime } from "../format";
import { me } from "../live/store";
import { Command } from "../parts/basics";
import { t } from "../texts";

export function MePage() {
  const who = me.value;
  if (!who) return <h1>{t("me")}</h1>;
  return (
    <>
      <h1>{t("me")}</h1>
      <dl class="facts">
        <div>
          <dt>{t("whoAmI")}</dt>
          <dd>{who.username}</dd>
        </div>
        <div>
          <dt>{t("groups")}</dt>
          <dd>{who.groups.join(", ")}</dd>
        </div>
      </dl>
      <p>{who.everywhere ? t("seesAll") : t("seesSome")}</p>
      {!who.everywhere && <ul>{who.namespaces.map((name) => <li key={name}>{name}</li>)}</ul>}
      {who.expiresAt && <p>{t("tokenEnds", inTime(who.expiresAt))}</p>}
      <Command lines={["kubectl auth whoami", "kubectl auth can-i --list"]} />
    </>
  );
}
