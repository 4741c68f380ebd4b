"""Jobs as the queue sees them, made out of the operator's state. No I/O.

Each look at the queue takes all jobs that wait or start, and of thousands hardly one has changed since the look before:
what was made of a job is kept as long as all that it was made of is the same.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dovetail.api.gpujob import GPUJob
from dovetail.asks import written_spec
from dovetail.kube.objects import Job
from dovetail.kube.reflector import key_of
from dovetail.queue.candidates import Candidate
from dovetail.queue.gate import Refused
from dovetail.quotas import spec_in_pools
from dovetail_operator.runtimes import is_limited

if TYPE_CHECKING:
    from dovetail_operator.state import State

_WHERE: Final = ("nodeSelector", "tolerations")
_Sites = dict[str, list[str]]
_MadeOf = tuple[tuple[object, ...], tuple[object, ...]]


class Candidacies:
    """Candidates from look to look, by the job's UID."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_MadeOf, Candidate]] = {}
        self._asked: dict[str, tuple[_MadeOf, Candidate]] = {}

    def forget_others(self) -> None:
        """A look is over: what is kept of jobs that were not asked for is dropped, with all that it was made of."""
        self._known, self._asked = self._asked, {}

    def of(
        self, job: GPUJob, *, state: "State", sites: _Sites, workers: int, nodes: tuple[str, ...] = ()
    ) -> Candidate | None:
        """The job for the queue; None where its request cannot be read.

        `workers` are those that have no node yet and `nodes` what a plan that stands has for them; the nodes that
        its pods may go to are noted in `sites`.
        """
        uid, child, pools = job.metadata.uid, state.child_of(job), state.quotas.pools_of(job)
        objects = (job, child, state.verdicts.get(uid))
        number = state.number_of(job) or 0
        values = (workers, nodes, pools, number, state.estimate_of(job), state.expectations.learned_of(job))
        known = self._known.get(uid)
        if known is not None and _are_same(known[0], objects, values):
            made = known[1]
        elif (found := _made(job, child, state=state, pools=pools, workers=workers, nodes=nodes)) is not None:
            made = found
        else:
            return None
        share = state.quotas.level_of(job)
        if made.share != share:
            made = replace(made, share=share)
        self._asked[uid] = (objects, values), made
        if made.site not in sites:
            sites[made.site] = state.view.eligible_nodes(spec_in_pools(written_spec(job), pools))
        return made


def _are_same(known: _MadeOf, objects: tuple[object, ...], values: tuple[object, ...]) -> bool:
    """Objects are never changed, but replaced: so it is enough that they are the very same."""
    return known[1] == values and all(one is other for one, other in zip(known[0], objects, strict=True))


def _made(
    job: GPUJob,
    child: Job | None,
    *,
    state: "State",
    pools: tuple[str, ...] | Refused,
    workers: int,
    nodes: tuple[str, ...],
) -> Candidate | None:
    ways = state.ways_of(job)
    ask = state.chosen_of(job, ways)
    if ask is None:
        return None
    # Pods of a batch Job that is at work ask in one way, and that does not change.
    at_work = child is not None and not child.spec.suspend
    others = () if at_work else tuple(way for way in ways if way != ask)
    return Candidate(
        key=job.metadata.uid,
        ask=ask,
        others=others,
        workers=workers,
        nodes=nodes,
        least=job.spec.min_workers,
        likely_seconds=state.expectations.run_seconds(job),
        likely_range=state.expectations.range_seconds(job),
        priority=job.spec.priority,
        created=job.metadata.creation_timestamp,
        number=state.number_of(job) or 0,
        name=key_of(job.metadata),
        site=_site(spec_in_pools(written_spec(job), pools)),
        run_seconds=state.run_times.run_seconds(job),
        limited=is_limited(job),
    )


def _site(spec: Mapping[str, Any]) -> str:
    """What a pod's spec says of the nodes that it may go to: jobs that say the same share their nodes in a cycle."""
    said: dict[str, Any] = {field: spec[field] for field in _WHERE if spec.get(field)}
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if node_affinity:
        said["affinity"] = {"nodeAffinity": node_affinity}
    # Thousands of jobs say the same: one text for all of them.
    return sys.intern(json.dumps(said, sort_keys=True))
