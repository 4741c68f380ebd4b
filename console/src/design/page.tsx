// The head of a page, and its tabs: each is a link, so that every state of a page has an address.
import type { ComponentChildren } from "preact";

interface HeadProps {
  title: ComponentChildren;
  crumbs?: ComponentChildren;
  lead?: ComponentChildren;
  actions?: ComponentChildren;
}

export const PageHead = ({ title, crumbs, lead, actions }: HeadProps) => (
  <div class="page-head">
    <div>
      {crumbs && <div class="crumbs">{crumbs}</div>}
      <h1>{title}</h1>
      {lead && <p class="lead">{lead}</p>}
    </div>
    {actions && <div class="row">{actions}</div>}
  </div>
);

export interface Tab {
  href: string;
  text: string;
  count?: number;
  current: boolean;
}

export const Tabs = ({ label, tabs }: { label: string; tabs: readonly Tab[] }) => (
  <nav class="tabs" aria-label={label}>
    {tabs.map((tab) => (
      <a key={tab.href} href={tab.href} aria-current={tab.current ? "true" : undefined}>
        {tab.text} {tab.count !== undefined && <span class="count">{tab.count}</span>}
      </a>
    ))}
  </nav>
);
