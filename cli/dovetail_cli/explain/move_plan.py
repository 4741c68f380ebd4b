"""`dovetail move plan JOB`: the moves that start a waiting job, from the cluster as it is."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from dovetail.answers.moves import MovesAnswer, PlacedWorker
from dovetail.api.gpujob import GPUJob
from dovetail.formats.durations import human
from dovetail.kube.queries.disruption_budgets import list_disruption_budgets
from dovetail.query.explain.moves import moves_for
from dovetail.query.jobs import selection
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.snapshot import take
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now

COLUMNS: Final = ("NAMESPACE", "JOB", "MOVES", "FROM", "TO", "LOSES", "AWAY")


def show(
    word: str, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None
) -> tuple[str, bool]:
    """The plan for a job of the namespace, as text or for programs, and whether there is one.

    Raises `InvalidQueryError` and `MissingError`.
    """
    wanted = selection.parse_one(word, field="JOB")

    async def look(cluster: Cluster) -> MovesAnswer:
        return (await found_for(cluster, wanted=wanted, to_apply=False))[1]

    found = work(look, kubeconfig=kubeconfig, context=context, namespace=namespace)
    if form != "table":
        return output.document(msgspec.to_builtins(found), form=form), found.holds
    return text(found), found.holds


async def found_for(cluster: Cluster, *, wanted: selection.Wanted, to_apply: bool) -> tuple[GPUJob, MovesAnswer]:
    """The job, and the plan for it: one `to_apply` moves only jobs that say that they may move.

    Raises `MissingError`.
    """
    with patiently() as say:
        objects = await take(cluster, say=say)
        budgets = await list_disruption_budgets(cluster.client)
        ours = [job for job in objects.jobs if job.metadata.namespace == cluster.namespace]
        chosen, missing = selection.select(ours, wanted=[wanted])
        if missing:
            raise MissingError(f"{selection.none_such(missing)} in namespace {cluster.namespace}")
        say(f"Trying moves on {len(objects.nodes):,} nodes …")
        found = moves_for(chosen[0], objects=objects, budgets=budgets, now=utc_now(), to_apply=to_apply)
        return chosen[0], found


def text(found: MovesAnswer, *, to_apply: bool = False) -> str:
    """The plan for people: the sentence, the moves, and where the job starts."""
    return "\n\n".join(_parts(found, to_apply=to_apply))


def _parts(found: MovesAnswer, *, to_apply: bool) -> Iterator[str]:
    yield output.bold(f"{found.summary}.")
    if found.holds:
        yield output.table([list(COLUMNS), *_lines(found)])
        yield f"{found.job.name} starts on {_places(found.workers)}."
        yield _proof(found) if to_apply else f"{_proof(found)} Nothing was changed."
    else:
        jobs = f"{found.movable} running job{'s' * (found.movable != 1)} may move"
        who = "say moves: Restart, or their namespace does" if to_apply else "may be preempted"
        yield f"{jobs}: those that {who}, have run long enough, and have all their workers on nodes."
    yield from (f"{note}." for note in found.notes)


def _lines(found: MovesAnswer) -> Iterator[list[str]]:
    for move in found.moves:
        yield [
            *(("", "") if move.job is None else (move.job.namespace, move.job.name)),
            move.moves,
            _places(move.source),
            _places(move.destination),
            f"{move.lost_device_seconds / 3600:.2f} GPU h",
            human(move.away_seconds),
        ]


def _places(workers: Sequence[PlacedWorker]) -> str:
    """Nodes with the indexes of devices, such as node-1:0,2."""
    return " ".join(f"{each.node}:{','.join(map(str, each.indexes))}".rstrip(":") for each in workers)


def _proof(found: MovesAnswer) -> str:
    others = found.compared
    who = f"{others} other waiting job{'s start' if others != 1 else ' starts'}" if others else "No other job waits"
    return f"{who}{' no later than without the moves' if others else ''}."
