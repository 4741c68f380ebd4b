// What `dovetail doctor` finds on nodes, and what takes no work.
import { usePolled } from "../../api/polled";
import type { NodeFindings } from "../../api/types";
import { age } from "../../format";
import { nodes, sequence } from "../../live/store";
import { t } from "../../texts";

const AGAIN_MS = 15_000;

export function Findings() {
  const { found, problem } = usePolled<NodeFindings | null>("/api/v3/findings", AGAIN_MS, null);
  if (sequence() < 0) return null;
  const oldest = nodes.value.reduce<string | null>((least, { observedAt: at }) => (at && (!least || at < least) ? at : least), null);
  const closed = nodes.value.reduce((sum, node) => sum + node.devices.filter((device) => !device.takesWork).length, 0);
  return (
    <>
      {problem && <p class="problem">{problem}</p>}
      {found && found.total === 0 && <p>{t("nothingWrong")}</p>}
      <ul class="findings">
        {found?.items.map((each) => (
          <li key={each.message}>
            <details>
              <summary>
                <strong class={`level-${each.level}`}>{t(`level_${each.level}`)}</strong> {each.nodes.slice(0, 2).join(", ")}
                {each.count > 2 && ` ${t("andMore", each.count - 2)}`}: {each.message}
              </summary>
              {each.count > 2 && <p>{each.nodes.join(", ")}</p>}
              {each.fix && <p>{t("fix", each.fix)}</p>}
            </details>
          </li>
        ))}
      </ul>
      {found && found.total > found.items.length && <p>{t("moreFindings", found.total - found.items.length)}</p>}
      {closed > 0 && (
        <p>
          <a href="/console/map?state=closed">{t("closedDevices", closed)}</a>
        </p>
      )}
      <p class="note">
        {found && `${t("findingsOf", age(found.asOf))}. `}
        {t("oldestReport", age(oldest))}
      </p>
    </>
  );
}
