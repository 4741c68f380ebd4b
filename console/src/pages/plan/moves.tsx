// Moves: which running jobs could restart elsewhere so that waiting jobs start, with the devices before and after.
import { computed } from "@preact/signals";
import { Combine } from "lucide";
import { useMemo } from "preact/hooks";
import { usePolled } from "../../api/polled";
import type { JobRow, MovesAnswer, MovesList, NodeRow } from "../../api/types";
import { Card } from "../../design/card";
import { Command } from "../../design/command";
import { Empty, Skeleton } from "../../design/empty";
import { Select } from "../../design/field";
import { Table } from "../../design/table";
import { duration, number } from "../../format";
import { currentAt, jobs, job as jobOf, keyOf, nodes } from "../../live/store";
import { called, JobLink, NodeLink, Said } from "../../parts/basics";
import { promisedOf } from "../../parts/use";
import { place, setQuery } from "../../router";
import { t } from "../../texts";

const AGAIN_MS = 60_000;
const SCATTERED = "Fragmentation";
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const STAR = "★";
// In place of jobs in the address: all that wait for scattered room, as many as the gateway plans for at once.
const ALL = "all";
const MOST_JOBS = 20;
const round = computed(() => Math.floor(currentAt.value / AGAIN_MS));

// Shown where room is free but scattered, or where the address names jobs.
export function Moves() {
  const asked = place.value.query.get("moves") ?? "";
  const scattered = jobs.value.filter((job) => job.phase === "Queued" && job.reason === SCATTERED).map(keyOf);
  const offered = asked && asked !== ALL && !scattered.includes(asked) ? [asked, ...scattered] : scattered;
  // In a busy cluster the jobs that wait change each second, and each answer is a search.
  const keys = useMemo(() => (asked === ALL ? scattered.slice(0, MOST_JOBS) : asked.split(",").filter(Boolean)), [asked, scattered.length > 0, round.value]);
  if (!offered.length) return null;
  const name = (asked: string) => asked.split(",").map((key) => called(jobOf(key) ?? { number: null, name: key })).join(", ");
  const all: [string, string][] = scattered.length > 1 ? [[ALL, t("movesAll", Math.min(scattered.length, MOST_JOBS))]] : [];
  return (
    <Card
      title={t("moves")}
      note={t("movesHow")}
      actions={
        <div class="short">
          <Select label={t("movesFor")} value={asked} choices={[["", t("movesChoose")], ...all, ...offered.map((key) => [key, name(key)] as const)]} onChoose={(key) => setQuery({ moves: key })} />
        </div>
      }
    >
      {keys.length ? <OfJobs key={asked} keys={keys} /> : <Empty icon={Combine} title={t("movesNoneChosen", scattered.length)} />}
    </Card>
  );
}

// The plans of all jobs hold together; what is not counted is the same for each.
function OfJobs({ keys }: { keys: readonly string[] }) {
  const { found, problem } = usePolled<MovesList | null>(`/api/v3/moves?jobs=${encodeURIComponent(keys.join(","))}`, AGAIN_MS, null);
  if (problem) return <p class="problem">{problem}</p>;
  if (!found) return <Skeleton lines={4} />;
  const { notes = [], noteDetails = [] } = found.items[0] ?? {};
  return (
    <div class="stack">
      {found.items.map((each) => (
        <section key={keyOf(each.job)} class="stack" aria-label={called(each.job)}>
          {each.holds ? <Plan found={each} /> : <p class="no-moves"><Said message={each.summary} details={each.details} /></p>}
        </section>
      ))}
      {notes.map((note, at) => <p key={note} class="note no-moves"><Said message={note} details={noteDetails[at] ?? []} /></p>)}
      <Command lines={commandsFor(found.items)} />
    </div>
  );
}

// One for each namespace.
function commandsFor(items: readonly MovesAnswer[]): string[] {
  const namespaces = [...new Set(items.map(({ job }) => job.namespace))];
  const wordsIn = (namespace: string) => items.filter(({ job }) => job.namespace === namespace).map(({ job }) => job.number ?? job.name);
  return namespaces.map((namespace) => `dovetail move plan ${wordsIn(namespace).join(" ")} --namespace ${namespace}`);
}

const hours = (seconds: number): string => number(seconds / 3600, 2);

function Plan({ found }: { found: MovesAnswer }) {
  const { startsInSeconds: starts, otherwiseSeconds: otherwise, compared } = found;
  const when = duration(starts ?? 0);
  return (
    <>
      <p class="strong">
        {STAR} <JobLink job={found.job} />: {otherwise === null ? t("movesStart", when) : t("movesInstead", when, duration(otherwise))}
      </p>
      <p>{t("movesCost", hours(found.lostDeviceSeconds), hours(found.gainedDeviceSeconds))} {compared > 0 && t("movesCompared", compared)}</p>
      <ul class="bullets">
        {found.moves.map((move, at) => (
          <li key={at}>
            {letterOf(at)} {move.job ? <JobLink job={move.job} /> : t("anotherTenant")}: {placesOf(move.source)} → {placesOf(move.destination)}.{" "}
            {t("movesLoses", hours(move.lostDeviceSeconds), duration(move.awaySeconds))}{" "}
            {move.savesEverySeconds === null ? t("movesSavesNot") : t("movesSaves", duration(move.savesEverySeconds))}
          </li>
        ))}
      </ul>
      <Table
        label={t("movesOf", called(found.job))}
        rows={concerned(found)}
        keyOf={(node) => node.name}
        columns={[
          { id: "node", title: t("node"), cell: (node) => <NodeLink name={node.name} /> },
          { id: "before", title: t("movesBefore"), cell: (node) => <Seats seats={before(node, found)} /> },
          { id: "after", title: t("movesAfter"), cell: (node) => <Seats seats={after(node, found)} /> },
        ]}
      />
    </>
  );
}

const letterOf = (at: number): string => LETTERS[at % LETTERS.length] ?? "";

type Workers = MovesAnswer["workers"];
const placesOf = (workers: Workers): string => workers.map(({ node, indexes }) => `${node}:${indexes.join(",")}`).join("; ");
const holds = (workers: Workers, node: NodeRow, index: number): boolean => workers.some((each) => each.node === node.name && each.indexes.includes(index));

function concerned({ moves, workers }: MovesAnswer): NodeRow[] {
  const names = new Set([...moves.flatMap((move) => [...move.source, ...move.destination]), ...workers].map(({ node }) => node));
  return nodes.value.filter((node) => names.has(node.name));
}

interface Seat {
  index: number;
  // A mover's letter, the star of the job that starts, or nothing.
  mark: string;
  kind: "free" | "other" | "mover" | "starts";
  title: string;
}

const nameOf = (job: Pick<JobRow, "number" | "name"> | null): string => (job ? called(job) : t("anotherTenant"));

function seat(index: number, mark: string, kind: Seat["kind"], who: string): Seat {
  return { index, mark, kind, title: `${index}: ${who}` };
}

function moverAt({ moves }: MovesAnswer, of: "source" | "destination", node: NodeRow, index: number): Seat | null {
  const at = moves.findIndex((move) => holds(move[of], node, index));
  const move = moves[at];
  return move ? seat(index, letterOf(at), "mover", nameOf(move.job)) : null;
}

const others = (node: NodeRow, index: number): Seat => {
  const device = node.devices.find((each) => each.index === index);
  const taken = device !== undefined && promisedOf(device) > 0;
  return taken ? seat(index, "", "other", t("seatOther")) : seat(index, "", "free", t("seatFree"));
};

const before = (node: NodeRow, found: MovesAnswer): Seat[] =>
  node.devices.map(({ index }) => moverAt(found, "source", node, index) ?? others(node, index));

// What a mover has left is free, unless another one or the job takes it.
const after = (node: NodeRow, found: MovesAnswer): Seat[] =>
  node.devices.map(({ index }) => {
    if (holds(found.workers, node, index)) return seat(index, STAR, "starts", called(found.job));
    const left = moverAt(found, "source", node, index);
    return moverAt(found, "destination", node, index) ?? (left ? seat(index, "", "free", t("seatFree")) : others(node, index));
  });

const Seats = ({ seats }: { seats: readonly Seat[] }) => (
  <ol class="seats">
    {seats.map(({ index, mark, kind, title }) => (
      <li key={index} class={`seat seat-${kind}`} title={title}>
        <span aria-hidden="true">{mark}</span>
        <span class="unseen">{title}</span>
      </li>
    ))}
  </ol>
);
