"""Running elastic jobs of which more workers were requested, and that get more if they restart now. No I/O.

A module of its own: pure, where `loop` writes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.jobs.cpu_fallback import BUSY
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.inputs.usage import use_of
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.model.candidates import Candidate, claim_on_the_way
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_operator.queue.cycle import Cycle
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs


class ScaleUps:
    """Decides after a cycle which job restarts with more workers, one at a time.

    A restart puts a job back into the queue. So none restarts while another job waits for capacity: that one could take
    what the job needs.
    """

    def __init__(self, state: State, *, changed: Callable[[str], None]) -> None:
        self._state = state
        self._changed = changed

    def update(self, cycle: Cycle, *, wanted: Iterable[GPUJob]) -> None:
        """Find the first of the jobs that gets more workers, and mark it as changed."""
        able = [] if self._some_job_waits() else [job for job in wanted if _is_settled(job, cycle=cycle)]
        found = next((job for job in able if self._gets_more(job, cycle=cycle)), None)
        uids = frozenset[str]() if found is None else frozenset({found.metadata.uid})
        if found is not None and uids != self._state.decisions.scale_ups:
            self._changed(key_of(found.metadata))
        self._state.decisions.set_scale_ups(uids)

    def _some_job_waits(self) -> bool:
        verdicts = self._state.decisions.verdicts.values()
        return any(isinstance(verdict, Waits) and verdict.reason in BUSY for verdict in verdicts)

    def _gets_more(self, job: GPUJob, *, cycle: Cycle) -> bool:
        """Whether the queue would admit the job with more workers if it ended now."""
        state, child = self._state, self._state.store.child_of(job)
        now = 0 if child is None else child.spec.completions or 0
        made = Candidacies().candidate(job, state=state, sites=cycle.sites, workers=job.spec.workers)
        if made is None or not now:
            return False
        more = replace(made, least=now + _step(job), others=())
        return more.workers >= (more.least or 0) and isinstance(self._verdict(more, job=job, cycle=cycle), Admitted)

    def _verdict(self, candidate: Candidate, *, job: GPUJob, cycle: Cycle) -> object:
        state, quotas = self._state, self._state.store.quotas
        ledger = state.store.view.ledger.copy()
        claim_on_the_way(
            [*cycle.on_the_way, *cycle.moving.values()], ledger=ledger, sites=cycle.sites, going=cycle.going
        )
        for verdict in state.decisions.verdicts.values():
            if isinstance(verdict, Admitted):
                ledger.commit_all(verdict.claims)
        counted = list(self._counted(job, least=candidate.least, cycle=cycle))
        gate = quotas.gate(counted, children=children_of_jobs(state), capacity=quotas.capacity(state.store.view.ledger))
        own = {pod.metadata.uid for pod in state.store.pods.pods_of(state.store.child_of(job))}
        for uid in own:
            ledger.release(uid)
        leaving = [each for each in cycle.leaving if each.key not in own]
        windows = windows_of(
            quotas,
            counted=counted,
            view=state.store.view,
            ledger=ledger,
            leaving=leaving,
            now=cycle.now,
            gate=gate,
        )
        look = SchedulingCycle(ledger, sites=cycle.sites, leaving=leaving, gate=gate, windows=windows)
        return look.at(candidate)

    def _counted(self, job: GPUJob, *, least: int | None, cycle: Cycle) -> Iterator[Counted]:
        """What all take of the quotas, if the job waited for `least` workers or more."""
        state, uid = self._state, job.metadata.uid
        for each in counted_jobs(state, waiting=cycle.keys, cache=cycle.caches.usage):
            if each.uid != uid:
                yield each
        waiting = use_of(
            job, child=None, ask_of=state.requests.ask_of, admitted=None, waits=True, quotas=state.store.quotas
        )
        if waiting is not None:
            yield replace(waiting, least=least)


def _is_settled(job: GPUJob, *, cycle: Cycle) -> bool:
    """Whether all workers have their nodes, and nothing else is about to restart the job."""
    uid = job.metadata.uid
    return uid not in cycle.planned and uid not in cycle.orders and uid not in cycle.moving


def _step(job: GPUJob) -> int:
    """The number of workers by which a gang grows at least."""
    topology = job.spec.topology
    return 1 if topology is None or topology.sub_groups is None else topology.sub_groups.size
