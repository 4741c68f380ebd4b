// What is free of each model, and the largest request that starts now.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { failure, post } from "../../api/client";
import type { DeviceRow, DryRun, NodeRow } from "../../api/types";
import { byName, me, namespaces, nodes } from "../../live/store";
import { MeterLine } from "../../design/meter";
import { Table } from "../../design/table";
import { specOf } from "../../requests";
import { t } from "../../texts";

interface ModelUse {
  model: string;
  // The profile of MIG instances; empty for GPUs.
  profile: string;
  free: number;
  total: number;
  // The most free devices on one node: no single worker can start with more.
  most: number;
}

function modelUses(list: readonly NodeRow[]): ModelUse[] {
  const found = new Map<string, ModelUse>();
  for (const node of list) {
    const here = Map.groupBy(node.devices, (device: DeviceRow) => device.model);
    for (const [model, devices] of here) {
      const profile = devices[0]?.migProfile ?? "";
      const free = devices.filter((device) => device.available).length;
      const use = found.get(model) ?? { model, profile, free: 0, total: 0, most: 0 };
      found.set(model, { model, profile, free: use.free + free, total: use.total + devices.length, most: Math.max(use.most, free) });
    }
  }
  return [...found.values()].sort((a, b) => byName(a.model, b.model));
}

export const Models = () => (
  <Table
    label={t("freeByModel")}
    rows={modelUses(nodes.value)}
    keyOf={(use) => use.model}
    columns={[
      { id: "model", title: t("model"), cell: (use) => use.model },
      { id: "free", title: t("free"), cell: (use) => <MeterLine part={use.free / use.total} tone="good" label={t("freeOf", use.free, use.total)} text={t("freeOf", use.free, use.total)} /> },
      { id: "largest", title: t("largestNow"), cell: (use) => <Largest use={use} /> },
    ]}
  />
);

// A request for so many of them as people write it; an instance has its GPU's model and its profile in its own.
const requestOf = (use: ModelUse, count: number): string =>
  use.profile ? `${count}x${use.profile}(${use.model.split(" MIG ")[0]})` : `${count}(${use.model})`;

export const chosenNamespace = (): string => namespaces.value[0] ?? "default";

// The largest request that the queue would start now. Free devices bound it; reservations and quotas may lower it.
function Largest({ use }: { use: ModelUse }) {
  const answer = useSignal<string | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    answer.value = null;
    void (async () => {
      for (let gpus = use.most; gpus > 0; gpus = gpus > 1 ? Math.floor(gpus / 2) : 0) {
        const spec = specOf({ gpu: requestOf(use, gpus), limit: "1h" });
        const said = await post<DryRun>("/api/v3/dry-run", { namespace: chosenNamespace(), spec }, { signal: stop.signal });
        if (said.outcome === "Starts") {
          answer.value = `${requestOf(use, gpus)}: ${(said.nodes ?? []).map((each) => each.node).join(", ")}`;
          return;
        }
      }
      answer.value = t("largestNone");
    })().catch((error: unknown) => {
      if (!stop.signal.aborted) answer.value = failure(error);
    });
    return () => stop.abort();
  }, [use.most, use.free, use.model, me.value?.username]);
  return <>{answer.value ?? t("largestAsking")}</>;
}
