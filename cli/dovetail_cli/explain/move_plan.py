"""`dovetail move plan JOBS`: the moves that start waiting jobs, from the cluster as it is."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from dovetail.answers.moves import MovesAnswer, MovesList, PlacedWorker
from dovetail.api.gpujob import GPUJob
from dovetail.formats.durations import human
from dovetail.kube.queries.disruption_budgets import list_disruption_budgets
from dovetail.query.explain.moves import moves_for
from dovetail.query.jobs import selection
from dovetail_cli.cluster import identity
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.snapshot import take
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now

COLUMNS: Final = ("NAMESPACE", "JOB", "MOVES", "FROM", "TO", "LOSES", "AWAY")


def show(
    words: Sequence[str], *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None
) -> tuple[str, bool]:
    """The plans for jobs of the namespace, as text or a document, and whether each has one.

    Raises `InvalidQueryError` and `MissingError`.
    """
    wanted = selection.parse_ids(words, field="JOBS")

    async def look(cluster: Cluster) -> MovesList:
        return (await found_for(cluster, wanted=wanted, to_apply=False))[1]

    found = work(look, kubeconfig=kubeconfig, context=context, namespace=namespace)
    holds = all(each.holds for each in found.items)
    if form != "table":
        return output.document(msgspec.to_builtins(found), form=form), holds
    return text(found), holds


async def found_for(
    cluster: Cluster, *, wanted: Sequence[selection.Wanted], to_apply: bool
) -> tuple[list[GPUJob], MovesList]:
    """The jobs, and the plans for them.

    Those `to_apply` move only jobs that say that they may move.

    Raises `MissingError`.
    """
    with patiently() as say:
        objects = await take(cluster, say=say)
        budgets = await list_disruption_budgets(cluster.client)
        ours = [job for job in objects.jobs if job.metadata.namespace == cluster.namespace]
        chosen, missing = selection.select(ours, wanted=await identity.of_caller(wanted, cluster=cluster))
        if not chosen:
            missing = [each.text for each in wanted]
        if missing:
            raise MissingError(f"{selection.none_such(missing)} in namespace {cluster.namespace}")
        say(f"Trying moves on {len(objects.nodes):,} nodes …")
        return chosen, moves_for(chosen, objects=objects, budgets=budgets, now=utc_now(), to_apply=to_apply)


def text(found: MovesList, *, to_apply: bool = False) -> str:
    """The plans for people: for each job the sentence, the moves, and where the job starts."""
    return "\n\n".join(_parts(found, to_apply=to_apply))


def _parts(found: MovesList, *, to_apply: bool) -> Iterator[str]:
    for each in found.items:
        yield output.bold(f"{each.summary}.")
        if each.holds:
            yield output.table([list(COLUMNS), *_lines(each)])
            yield f"{each.job.name} starts on {_places(each.workers)}. {_proof(each)}"
    first = found.items[0]
    if not all(each.holds for each in found.items):
        jobs = f"{first.movable} running job{'s' * (first.movable != 1)} may move"
        who = "say moves: Restart, or their namespace does" if to_apply else "may be preempted"
        yield f"{jobs}: those that {who}, have run long enough, and have all their workers on nodes."
    yield from (f"{note}." for note in first.notes)
    if not to_apply and any(each.holds for each in found.items):
        yield "Nothing was changed."


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
    if not others:
        return "No other job waits."
    return f"{others} other waiting job{'s start' if others != 1 else ' starts'} no later than without the moves."
