// The pages by the first part of their path, with their icons and the key that follows `g`.
import { CalendarRange, ChartColumn, Gauge, Grid3x3, type IconNode, LayoutDashboard, Leaf, ListOrdered, Palette, Plus, Server, Settings } from "lucide";
import type { JSX } from "preact";
import { DesignPage } from "../pages/design/index";
import { MapPage } from "../pages/map/index";
import { JobsPage } from "../pages/jobs/index";
import { NodesPage } from "../pages/nodes/index";
import { OverviewPage } from "../pages/overview/index";
import { PlanPage } from "../pages/plan/index";
import { QuotasPage } from "../pages/quotas";
import { SettingsPage } from "../pages/settings";
import { SubmitPage } from "../pages/submit/index";
import { UsagePage } from "../pages/usage";
import { WastePage } from "../pages/waste";

interface Page {
  icon: IconNode;
  key: string;
  draw: () => JSX.Element;
}

export const PAGES = {
  overview: { icon: LayoutDashboard, key: "o", draw: OverviewPage },
  jobs: { icon: ListOrdered, key: "j", draw: JobsPage },
  submit: { icon: Plus, key: "c", draw: SubmitPage },
  nodes: { icon: Server, key: "n", draw: NodesPage },
  map: { icon: Grid3x3, key: "m", draw: MapPage },
  plan: { icon: CalendarRange, key: "p", draw: PlanPage },
  quotas: { icon: Gauge, key: "q", draw: QuotasPage },
  usage: { icon: ChartColumn, key: "u", draw: UsagePage },
  waste: { icon: Leaf, key: "w", draw: WastePage },
  settings: { icon: Settings, key: "s", draw: SettingsPage },
  design: { icon: Palette, key: "d", draw: DesignPage },
} satisfies Record<string, Page>;

export type PageName = keyof typeof PAGES;
export const isPage = (name: string): name is PageName => name in PAGES;

export const mainPages: readonly PageName[] = ["overview", "jobs", "nodes", "map", "plan"];
export const morePages: readonly PageName[] = ["quotas", "usage", "waste", "settings"];
