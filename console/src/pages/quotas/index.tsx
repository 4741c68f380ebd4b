// Quotas: the tree of guarantees with what is used, lent and borrowed of each, limits, and their namespaces over time.
import { Gauge, Pencil, TriangleAlert } from "lucide";
import { useSignal } from "@preact/signals";
import { usePolled } from "../../api/polled";
import type { QuotaList, QuotaRow } from "../../api/types";
import { IconButton } from "../../design/button";
import { Badge } from "../../design/badge";
import { Card } from "../../design/card";
import { Command } from "../../design/command";
import { Empty, Skeleton } from "../../design/empty";
import { MeterLine } from "../../design/meter";
import { PageHead } from "../../design/page";
import { type Column, Table } from "../../design/table";
import { gpus, percent } from "../../format";
import { shortUser } from "../../parts/basics";
import { pathTo } from "../../router";
import { t } from "../../texts";
import { HolderCharts } from "../../time/charts";
import { ChangeQuota } from "./change";

const AGAIN_MS = 10_000;

interface Leaf {
  quota: QuotaRow;
  depth: number;
}

export function QuotasPage() {
  const { found, problem } = usePolled<QuotaList | null>("/api/v3/quotas", AGAIN_MS, null);
  const saved = useSignal<QuotaRow | null>(null);
  // As it was when its dialog was opened, which stays open if the quota goes.
  const changing = useSignal<QuotaRow | null>(null);
  const quotas = found ? latest(found.items, saved.value) : [];
  const rows = treeOf(quotas);
  return (
    <>
      <PageHead title={t("quotas")} lead={t("quotasHow")} />
      {problem && <p class="problem">{problem}</p>}
      <Card title={t("quotas")} flush>
        {!found ? (
          <div class="padded"><Skeleton lines={4} /></div>
        ) : rows.length ? (
          <Table label={t("quotas")} rows={rows} columns={COLUMNS(rows, found.mayChange ? (quota) => (changing.value = quota) : null)} keyOf={({ quota }) => quota.name} />
        ) : (
          <Empty icon={Gauge} title={t("noQuotas")} text={t("noQuotasText")} />
        )}
      </Card>
      <HolderCharts of="Namespace" otherwise="1d" />
      <Command lines={["dovetail quota", "dovetail quota plan departments.yaml", "dovetail quota set NAME --guaranteed 8"]} />
      {changing.value && <ChangeQuota key={changing.value.name} quota={changing.value} others={quotas} onSaved={(row) => (saved.value = row)} onClose={() => (changing.value = null)} />}
    </>
  );
}

// What was just saved counts until the list has it.
const latest = (quotas: readonly QuotaRow[], saved: QuotaRow | null): readonly QuotaRow[] =>
  quotas.map((each) => (saved && saved.name === each.name && saved.generation > each.generation ? saved : each));

// Parents above their children; a quota whose parent one may not see begins a tree of its own.
function treeOf(quotas: readonly QuotaRow[]): Leaf[] {
  const known = new Set(quotas.map((quota) => quota.name));
  const children = Map.groupBy(quotas, (quota) => (quota.parent && known.has(quota.parent) && quota.parent !== quota.name ? quota.parent : ""));
  const found: Leaf[] = [];
  const add = (parent: string, depth: number) => {
    for (const quota of children.get(parent) ?? []) {
      found.push({ quota, depth });
      add(quota.name, depth + 1);
    }
  };
  add("", 0);
  // Quotas that are their own ancestors.
  const drawn = new Set(found.map(({ quota }) => quota.name));
  return [...found, ...quotas.filter((quota) => !drawn.has(quota.name)).map((quota) => ({ quota, depth: 0 }))];
}

const usedOf = (quota: QuotaRow): number => quota.guarantee?.used ?? quota.gpus;
const guaranteedOf = (quota: QuotaRow): number | null => quota.guarantee?.gpus ?? quota.guaranteed;

// Against its limit, or without one against what it is guaranteed.
function Use({ quota }: { quota: QuotaRow }) {
  const used = usedOf(quota);
  const all = quota.gpusLimit ?? guaranteedOf(quota);
  if (all === null) return <>{gpus(used)}</>;
  const text = t("usedOf", gpus(used), gpus(all));
  return <MeterLine part={all ? used / all : 0} label={`${text}, ${percent(all ? used / all : 0)}`} text={text} />;
}

const amount = (value: number | null | undefined): string => (value ? gpus(value) : "–");

function Whom({ quota }: { quota: QuotaRow }) {
  const others = quota.otherNamespaces + quota.otherUsers;
  const named = [...quota.namespaces, ...quota.users.map(shortUser), ...quota.projects];
  return (
    <>
      {quota.namespaces.map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <a href={`${pathTo("jobs")}?namespace=${encodeURIComponent(name)}`}>{name}</a>
        </span>
      ))}
      {quota.namespaces.length > 0 && named.length > quota.namespaces.length && ", "}
      {named.slice(quota.namespaces.length).join(", ")}
      {!named.length && !others && <span class="muted">{t("everyone")}</span>}
      {others > 0 && <span class="muted"> {t("andOthers", others)}</span>}
    </>
  );
}

// `onChange` for who may change them.
function COLUMNS(rows: readonly Leaf[], onChange: ((quota: QuotaRow) => void) | null): Column<Leaf>[] {
  const inTree = rows.some(({ quota }) => quota.guarantee);
  return [
    {
      id: "name",
      title: t("quota"),
      cell: ({ quota, depth }) => (
        <span class={`depth-${Math.min(depth, 4)}`}>
          {quota.name}
          {quota.problems.map((each) => <span key={each.reason}> <Badge tone="warn" icon={TriangleAlert}><span title={each.message}>{each.reason}</span></Badge></span>)}
          {onChange && <IconButton small icon={Pencil} label={t("changeQuotaOf", quota.name)} onClick={() => onChange(quota)} />}
        </span>
      ),
    },
    { id: "use", title: t("usedGpus"), cell: ({ quota }) => <Use quota={quota} /> },
    ...(inTree
      ? [
          { id: "guaranteed", title: t("guaranteed"), number: true, cell: ({ quota }: Leaf) => amount(guaranteedOf(quota)) },
          { id: "lent", title: t("lent"), number: true, cell: ({ quota }: Leaf) => amount(quota.guarantee?.lent) },
          { id: "borrowed", title: t("borrowed"), number: true, cell: ({ quota }: Leaf) => amount(quota.guarantee?.borrowed) },
          { id: "owed", title: t("waitsWithin"), number: true, cell: ({ quota }: Leaf) => amount(quota.guarantee?.waiting) },
        ]
      : []),
    { id: "jobs", title: t("jobs"), number: true, cell: ({ quota }) => t("runsAndWaits", quota.runningJobs, quota.queuedJobs) },
    { id: "whom", title: t("whom"), text: true, cell: ({ quota }) => <Whom quota={quota} /> },
    { id: "give", title: t("wouldGive"), text: true, cell: ({ quota }) => quota.guarantee?.wouldGive.map((each) => `${each.name} ${gpus(each.gpus)}`).join(", ") || "–" },
  ];
}
