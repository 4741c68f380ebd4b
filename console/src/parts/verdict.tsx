// What a dry run of the queue said of a request, in words.
import { CircleCheck, CircleX, Clock } from "lucide";
import type { DryRun } from "../api/types";
import { Badge } from "../design/badge";
import { duration } from "../format";
import { messageOf } from "../reasons";
import { Said } from "./basics";
import { t } from "../texts";

const TONES = { Starts: "good", Waits: "warn", Never: "bad", Blocked: "warn", NotBefore: "warn", Invalid: "bad" } as const;
const ICONS = { Starts: CircleCheck, Waits: Clock, Never: CircleX, Blocked: Clock, NotBefore: Clock, Invalid: CircleX };

export function Verdict({ said }: { said: DryRun }) {
  const on = (said.nodes ?? []).map((each) => `${each.node} (${each.gpus})`).join(", ");
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
      <p class="verdict-line">
        <Badge tone={TONES[said.outcome]} icon={ICONS[said.outcome]}>{main}</Badge>
      </p>
      {said.message && <p>{messageOf(said)}</p>}
      {said.outcome === "Waits" && <p>{startOf(said)}</p>}
      {said.preemption && <p>{preemptionOf(said.preemption)}</p>}
      {said.start?.basis && <p class="note basis"><Said message={said.start.basis} details={said.start.basisDetails ?? []} /></p>}
    </>
  );
}

// In how many seconds it starts at the soonest; null where nothing tells.
export function startsInSeconds({ start, preemption }: DryRun): number | null {
  const starts = [start?.seconds, preemption?.startsInSeconds].filter((each) => each !== undefined);
  return starts.length > 0 ? Math.min(...starts) : null;
}

function startOf(said: DryRun): string {
  const soonest = startsInSeconds(said);
  if (soonest === null) return t("verdictNoStart");
  const start = t("verdictStart", duration(soonest));
  if (soonest !== said.start?.seconds || said.start.earliest === null || said.start.latest === null) return `${start}.`;
  return `${start}, ${t("between", duration(said.start.earliest), duration(said.start.latest))}.`;
}

function preemptionOf({ victims, otherVictims }: NonNullable<DryRun["preemption"]>): string {
  const named = victims.map((each) => `${each.namespace}/${each.name}`).join(", ");
  const count = t("victims", victims.length + otherVictims);
  return named ? `${count} (${named})` : count;
}
