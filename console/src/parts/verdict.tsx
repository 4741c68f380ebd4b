// What a dry run of the queue said of a request, in words.
import type { DryRun } from "../api/types";
import { duration } from "../format";
import { t } from "../texts";

export function Verdict({ said }: { said: DryRun }) {
  const on = said.nodes.map((each) => `${each.node} (${each.gpus})`).join(", ");
  const main = {
    Starts: on ? t("verdictStarts", on) : t("verdictStartsAnywhere"),
    Waits: t("verdictWaits", said.position ?? "–"),
    Never: t("verdictNever"),
    Blocked: t("verdictBlocked"),
    NotBefore: t("verdictNotBefore"),
    Invalid: t("verdictInvalid"),
  }[said.outcome];
  return (
    <>
      <p>
        <strong class={`outcome outcome-${said.outcome}`}>{main}</strong> {said.message}
      </p>
      {said.outcome === "Waits" && <p>{startOf(said)}</p>}
      {said.victims > 0 && <p>{t("victims", said.victims)}</p>}
      {said.basis && <p class="note">{said.basis}</p>}
    </>
  );
}

function startOf(said: DryRun): string {
  if (said.startsInSeconds === null) return t("verdictNoStart");
  const start = t("verdictStart", duration(said.startsInSeconds));
  if (said.earliestInSeconds === null || said.latestInSeconds === null) return `${start}.`;
  return `${start}, ${t("between", duration(said.earliestInSeconds), duration(said.latestInSeconds))}.`;
}
