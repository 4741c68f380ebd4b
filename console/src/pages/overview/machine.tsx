// One's own machine: what it can do, and a first job while there is none.
import { Laptop } from "lucide";
import type { NodeRow } from "../../api/types";
import { Card } from "../../design/card";
import { Code } from "../../design/command";
import { Icon } from "../../design/icon";
import { gib, number } from "../../format";
import { jobs, nodes, sequence } from "../../live/store";
import { t } from "../../texts";

export function ThisMachine() {
  const [node, ...others] = nodes.value;
  if (!node || others.length || node.runs !== "Processes") return null;
  const gpus = node.devices.length > 0;
  return (
    <Card title={<span class="row"><Icon of={Laptop} /> {t("thisMachine")}</span>}>
      <div class="stack tight">
        <p>{canDo(node)}</p>
        {gpus ? <p class="muted">{t(node.enforces === "none" ? "machineShares" : "machineSharesBy", node.enforces)}</p> : <p class="muted">{t("machineNoGpu")}</p>}
        {sequence() >= 0 && jobs.value.length === 0 && (
          <>
            <p class="strong">{t("firstJob")}</p>
            <Code label={t("firstJob")} text={gpus ? "gbatch --gpus 1 python train.py" : "gbatch python train.py"} />
          </>
        )}
      </div>
    </Card>
  );
}

function canDo(node: NodeRow): string {
  const host = t("machineHas", number(node.cpus ?? 0), gib(node.hostMemoryMiB ?? 0));
  const models = [...Map.groupBy(node.devices, (device) => `${device.model}, ${gib(device.memoryMiB)}`)];
  return [host, ...models.map(([model, list]) => `${list.length} × ${model}`)].join(" · ");
}
