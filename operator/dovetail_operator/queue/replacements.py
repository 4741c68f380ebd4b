"""New nodes for workers that have lost theirs, in plans of jobs that run (`restart: Worker`). No I/O.

A module of its own: jobs that run and lack a worker, where `cycle` decides about those that wait.
"""

from collections.abc import Mapping, Sequence

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, Placement
from dovetail.engine.gang.replacement import replace_lost
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.jobs.plan import nodes_by_worker, open_workers, with_other_nodes
from dovetail.queue.model.candidates import Candidate, Leaving, commit


def replacement_of(
    job: GPUJob,
    *,
    pods: Sequence[Pod],
    candidate: Candidate,
    ledger: Ledger,
    sites: Mapping[str, Sequence[str]],
) -> tuple[Placement, list[Leaving]] | None:
    """The job's plan with other nodes for the workers that have no room on theirs, and when these workers end.

    Commits the workers to `ledger`, which has the claims of the job's workers that fit on their planned nodes. None if
    no worker goes on, or a lost one has no room within the rules of its gang: then the whole gang starts again.
    """
    placement = job.status.placement
    if job.spec.restart != "Worker" or placement is None:
        return None
    without_node = open_workers(placement, pods=pods)[: len(candidate.nodes)]
    # A worker that fits on its planned node has a claim, keyed by its place among those without a node.
    lost = [worker for at, worker in enumerate(without_node) if ledger.claim(f"{candidate.key}/{at}") is None]
    nodes = nodes_by_worker(placement)
    others = {worker: node for worker, node in enumerate(nodes) if worker not in lost}
    if not lost or len(without_node) == len(nodes):
        return None
    claims = replace_lost(
        ledger,
        ask=candidate.ask,
        lost=lost,
        others=others,
        key=f"{candidate.key}/replaced",
        nodes=sites[candidate.site] if candidate.site in sites else ledger.nodes(),
        fit_cache=FitCache(ledger),
    )
    if claims is None:
        return None
    placement = with_other_nodes(placement, nodes={worker: claim.node for worker, claim in claims.items()})
    return placement, commit(claims.values(), job=candidate, ledger=ledger)
