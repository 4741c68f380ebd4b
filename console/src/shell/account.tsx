// Who is signed in, and what is this person's own to choose.
import { ChevronsUpDown, Languages, LogOut, Monitor, Moon, Settings, Sun } from "lucide";
import { Icon } from "../design/icon";
import { Menu } from "../design/menu";
import { signOut } from "../live/session";
import { me } from "../live/store";
import { shortUser } from "../parts/basics";
import { language, theme } from "../preferences";
import { go, pathTo } from "../router";
import { t } from "../texts";

const THEMES = [
  ["auto", Monitor, "themeAuto"],
  ["light", Sun, "themeLight"],
  ["dark", Moon, "themeDark"],
] as const;

export function Account() {
  const name = shortUser(me.value?.username ?? "");
  return (
    <Menu
      label={t("account", name)}
      look="account"
      placement="top-start"
      items={[
        ...THEMES.map(([id, icon, text]) => ({
          id,
          icon,
          text: t(text),
          end: theme.value === id ? "✓" : "",
          onSelect: () => (theme.value = id),
        })),
        { id: "language", icon: Languages, text: language.value === "zh" ? "English" : "简体中文", apart: true, onSelect: () => (language.value = language.value === "zh" ? "en" : "zh") },
        { id: "settings", icon: Settings, text: t("settings"), onSelect: () => go(pathTo("settings")) },
        { id: "signOut", icon: LogOut, text: t("signOut"), apart: true, onSelect: () => void signOut() },
      ]}
    >
      <span class="avatar" data-letter={name.split(":").pop()?.slice(0, 1)} />
      <span class="clip">{name}</span>
      <Icon of={ChevronsUpDown} />
    </Menu>
  );
}
