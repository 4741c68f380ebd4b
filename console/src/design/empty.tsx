// What stands where nothing is yet: why, and what to do about it; or that it is loading.
import type { IconNode } from "lucide";
import type { ComponentChildren } from "preact";
import { t } from "../texts";
import { Icon } from "./icon";

interface Props {
  icon: IconNode;
  title: string;
  text?: ComponentChildren;
  // What to do next.
  actions?: ComponentChildren;
  // Whether it is the whole page, and its title so the page's heading.
  page?: boolean;
}

export const Empty = ({ icon, title, text, actions, page }: Props) => (
  <div class="empty">
    <Icon of={icon} />
    {page ? <h1>{title}</h1> : <strong>{title}</strong>}
    {text && <p>{text}</p>}
    {actions && <div class="row">{actions}</div>}
  </div>
);

const WIDTHS = ["70%", "45%", "60%", "35%"];

export const Skeleton = ({ lines = 3 }: { lines?: number }) => (
  <div class="stack" role="status">
    <span class="unseen">{t("starting")}</span>
    {Array.from({ length: lines }, (_, index) => (
      <span key={index} class="skeleton" style={{ width: WIDTHS[index % WIDTHS.length] ?? "50%" }} />
    ))}
  </div>
);
