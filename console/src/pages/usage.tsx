// Usage: GPU hours by namespace, project, user, model or day, what of them was at work, and what they cost.
import { ChartLine, Download } from "lucide";
import { usePolled } from "../api/polled";
import type { Series, Usage, UsageRow } from "../api/types";
import { ButtonLink } from "../design/button";
import { Card, StatTile } from "../design/card";
import { Command } from "../design/command";
import { Empty, Skeleton } from "../design/empty";
import { Select } from "../design/field";
import { MeterLine } from "../design/meter";
import { PageHead, Tabs } from "../design/page";
import { type Column, Table } from "../design/table";
import { money, number, percent } from "../format";
import { shortUser } from "../parts/basics";
import { place, setQuery, withQuery } from "../router";
import { t, type Text } from "../texts";
import { TimeChart } from "../time/chart";
import { HolderCharts, ModelCharts } from "../time/charts";
import { UNITS } from "../time/units";

const GROUPS = ["Namespace", "Project", "User", "Model"] as const;
type Group = (typeof GROUPS)[number];
const TITLES: Record<Group, Text> = { Namespace: "namespace", Project: "project", User: "user", Model: "model" };
const DAYS = ["7", "30", "90", "365"];
// What the gateway answers without a beginning, so that the page's head can ask for it.
const USUAL_DAYS = "30";
const AGAIN_MS = 60_000;
const DAY_MS = 86_400_000;

export function UsagePage() {
  const by = GROUPS.find((each) => each === place.value.query.get("by")) ?? "Namespace";
  const days = DAYS.find((each) => each === place.value.query.get("days")) ?? USUAL_DAYS;
  const since = days === USUAL_DAYS ? "" : `&since=${encodeURIComponent(`${new Date(Date.now() - (Number(days) - 1) * DAY_MS).toISOString().slice(0, 10)}T00:00:00Z`)}`;
  const { found, problem } = usePolled<Usage | null>(`/api/v3/usage?by=${by}${since}`, AGAIN_MS, null);
  const daily = usePolled<Usage | null>(`/api/v3/usage?by=Day${since}`, AGAIN_MS, null).found;
  return (
    <>
      <PageHead
        title={t("usage")}
        lead={t("usageHow")}
        actions={<Select label={t("timeRange")} value={days} choices={DAYS.map((each) => [each, t("lastDays", each)])} onChoose={(value) => setQuery({ days: value })} />}
      />
      {problem && <p class="problem">{problem}</p>}
      {found ? <Shown found={found} daily={daily} by={by} /> : !problem && <Skeleton lines={6} />}
      {(by === "Namespace" || by === "Project") && <HolderCharts key={by} of={by} otherwise="1mo" />}
      {by === "Model" && <ModelCharts otherwise="1mo" />}
      <Command lines={[`curl -H "Authorization: Bearer $TOKEN" "$URL/api/v3/usage?by=${by}"`, `gstats --since ${days}d --by user`]} />
    </>
  );
}

function Shown({ found, daily, by }: { found: Usage; daily: Usage | null; by: Group }) {
  const { total, items, currency } = found;
  const priced = total.cost !== null;
  const rows = items.map((row) => ({ ...row, group: by === "User" ? shortUser(row.group) : row.group }));
  return (
    <>
      <div class="tiles">
        <StatTile label={t("gpuHours")} value={number(total.gpuHours)} note={found.keptSince ? t("countedSince", found.keptSince) : t("firstSample")} />
        <StatTile label={t("usedOfPromised")} value={total.gpuHours ? percent(total.usedHours / total.gpuHours) : "–"} note={t("idleHours", number(total.gpuHours - total.usedHours))} />
        <StatTile label={t("cost")} value={total.cost === null ? "–" : money(total.cost, currency)} note={total.unpricedHours > 0 ? t("unpriced", number(total.unpricedHours)) : t("allPriced")} />
      </div>
      {daily && daily.items.length > 1 && (
        <Card title={t("byDay")}>
          <TimeChart title={t("gpuHours")} unit={UNITS.hours} series={daysOf(daily)} lines={[{ name: t("promised"), values: perDay(daily, (row) => row.gpuHours) }, { name: t("atWork"), values: perDay(daily, (row) => row.usedHours), filled: true }]} />
        </Card>
      )}
      <Card title={t("gpuHours")} flush actions={items.length > 0 && <ButtonLink small icon={Download} href={csvOf(found, by)} download={`usage-${by.toLowerCase()}.csv`}>CSV</ButtonLink>}>
        <div class="padded"><Tabs label={t("byWhom")} tabs={GROUPS.map((each) => ({ href: withQuery({ by: each }), text: t(TITLES[each]), current: each === by }))} /></div>
        {rows.length ? <Table label={t("gpuHours")} rows={rows} columns={COLUMNS(by, total, currency, priced)} keyOf={(row) => row.group} /> : <Empty icon={ChartLine} title={t("noUsage")} text={t("noSamplesText")} />}
      </Card>
    </>
  );
}

const COLUMNS = (by: Group, total: UsageRow, currency: string, priced: boolean): Column<UsageRow>[] => [
  { id: "group", title: t(TITLES[by]), cell: (row) => row.group || <span class="muted">{t("none")}</span> },
  { id: "hours", title: t("gpuHours"), number: true, cell: (row) => <span class="strong">{number(row.gpuHours)}</span> },
  { id: "part", title: t("partOfAll"), cell: (row) => partOf(row.gpuHours, total.gpuHours) },
  { id: "used", title: t("usedOfPromised"), cell: (row) => partOf(row.usedHours, row.gpuHours, "good") },
  { id: "idle", title: t("idlePart"), number: true, cell: (row) => number(row.gpuHours - row.usedHours) },
  ...(total.savableHours || total.savedHours
    ? [
        { id: "savable", title: t("savableHours"), number: true, cell: (row: UsageRow) => number(row.savableHours) },
        { id: "saved", title: t("savedHours"), number: true, cell: (row: UsageRow) => number(row.savedHours) },
      ]
    : []),
  ...(priced ? [{ id: "cost", title: t("cost"), number: true, cell: (row: UsageRow) => (row.cost === null ? "–" : money(row.cost, currency)) }] : []),
];

function partOf(value: number, all: number, tone: "accent" | "good" = "accent") {
  const part = all ? value / all : 0;
  return <MeterLine part={part} label={percent(part)} text={percent(part)} tone={tone} />;
}

// A value for each day from the first to the last one; days without a row have none.
function perDay(usage: Usage, of: (row: UsageRow) => number): (number | null)[] {
  const known = new Map(usage.items.map((row) => [row.group, of(row)]));
  const first = Date.parse(usage.items[0]?.group ?? usage.since);
  const count = Math.round((Date.parse(usage.items.at(-1)?.group ?? usage.since) - first) / DAY_MS) + 1;
  return Array.from({ length: count }, (_, day) => known.get(new Date(first + day * DAY_MS).toISOString().slice(0, 10)) ?? 0);
}

const daysOf = (usage: Usage): Series => ({
  since: `${usage.items[0]?.group ?? usage.since}T00:00:00Z`, stepSeconds: DAY_MS / 1000, keptSince: usage.keptSince, items: [], marks: [], marksLeftOut: 0, source: "Dovetail", sourceProblem: "",
});

const quotedCell = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function csvOf({ items, currency }: Usage, by: Group): string {
  const lines = [
    [by.toLowerCase(), "gpu_hours", "used_hours", "cost", "currency", "unpriced_hours", "savable_hours", "saved_hours"],
    // A text that begins like a formula is one to a spreadsheet.
    ...items.map((row) => [row.group.replace(/^[=+@-]/, "'$&"), row.gpuHours, row.usedHours, row.cost ?? "", row.cost === null ? "" : currency, row.unpricedHours, row.savableHours, row.savedHours]),
  ];
  return `data:text/csv;charset=utf-8,${encodeURIComponent(`${lines.map((line) => line.map((each) => quotedCell(String(each))).join(",")).join("\n")}\n`)}`;
}
