// A word of state with its sign, so that colour never stands alone.
import type { IconNode } from "lucide";
import type { ComponentChildren } from "preact";
import { Icon } from "./icon";

export type Tone = "plain" | "good" | "warn" | "bad" | "info" | "accent";

export const Badge = ({ tone = "plain", icon, children }: { tone?: Tone; icon?: IconNode; children: ComponentChildren }) => (
  <span class={`badge badge-${tone}`}>
    {icon && <Icon of={icon} />}
    {children}
  </span>
);
