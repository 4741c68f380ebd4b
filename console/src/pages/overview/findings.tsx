// What `dovetail doctor` finds on nodes, and what takes no work, each with how to correct it and where it is.
import { ChevronRight, CircleAlert, CircleCheck, TriangleAlert } from "lucide";
import { usePolled } from "../../api/polled";
import type { NodeFindings } from "../../api/types";
import { Empty, Skeleton } from "../../design/empty";
import { Icon } from "../../design/icon";
import { age } from "../../format";
import { nodes } from "../../live/store";
import { English, NodeLinks } from "../../parts/basics";
import { t } from "../../texts";

const AGAIN_MS = 15_000;
const ICONS = { error: CircleAlert, warning: TriangleAlert };

// Those of one node, or of all.
export function Findings({ node }: { node?: string }) {
  const { found, problem } = usePolled<NodeFindings | null>("/api/v3/findings", AGAIN_MS, null);
  const items = (found?.items ?? []).filter((each) => !node || each.nodes.includes(node));
  const seen = nodes.value.filter((each) => !node || each.name === node);
  const oldest = seen.reduce<string | null>((least, { observedAt: at }) => (at && (!least || at < least) ? at : least), null);
  const closed = seen.reduce((sum, each) => sum + each.devices.filter((device) => !device.takesWork).length, 0);
  if (problem) return <p class="problem padded">{problem}</p>;
  if (!found) return <div class="padded"><Skeleton /></div>;
  return (
    <>
      {items.length === 0 && closed === 0 && <Empty icon={CircleCheck} title={t("nothingWrong")} />}
      <ul class="list">
        {items.map((each) => (
          <li key={each.message}>
            <details class="disclosure finding">
              <summary>
                <Icon of={ChevronRight} />
                <span class={`level level-${each.level}`}>
                  <Icon of={ICONS[each.level]} /> <span class="unseen">{t(`level_${each.level}`)}</span>
                </span>
                <span>
                  {!node && `${each.nodes.slice(0, 2).join(", ")}${each.count > 2 ? ` ${t("andMore", each.count - 2)}` : ""}: `}
                  <English text={each.message} />
                </span>
              </summary>
              <div class="stack tight">
                {each.fix && <p>{t("fix", "")}<English text={each.fix} /></p>}
                <p class="muted"><NodeLinks names={each.nodes} /></p>
              </div>
            </details>
          </li>
        ))}
        {!node && found.total > found.items.length && <li>{t("moreFindings", found.total - found.items.length)}</li>}
        {closed > 0 && (
          <li>
            <a href={`/console/map?state=closed${node ? `&search=${encodeURIComponent(node)}` : ""}`}>{t("closedDevices", closed)}</a>
          </li>
        )}
      </ul>
      <p class="note padded">
        {t("findingsOf", age(found.asOf))}. {t("oldestReport", age(oldest))}
      </p>
    </>
  );
}
