"""How far a gang is, counted from drawn pods: each worker has had any number of them, and the latest one counts."""

from dataclasses import dataclass
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from dovetail.api.builtin import Pod
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.operator_.builders import make_child, make_job, make_pod, see


@dataclass(frozen=True)
class Worker:
    """The phases of a worker's pods, the oldest first: those that have ended, and then the one there is now, if any."""

    ended: tuple[str, ...]
    now: str = ""

    def pods(self, index: int) -> list[Pod]:
        phases = [*self.ended, *([self.now] if self.now else [])]
        return [
            make_pod(index, phase=phase, started=None if phase == "Pending" else -60, created=-90.0 + number)
            for number, phase in enumerate(phases)
        ]

    @property
    def is_there(self) -> bool:
        """Whether the worker runs, or has ended and does not begin again."""
        return self.now == "Running" or (not self.now and bool(self.ended))


# A worker that has succeeded has no later pod.
WORKERS = st.builds(
    Worker, ended=st.lists(st.just("Failed"), max_size=2).map(tuple), now=st.sampled_from(("", "Pending", "Running"))
)


@settings(max_examples=60)
@given(gang=st.lists(WORKERS, min_size=2, max_size=5), order=st.randoms(use_true_random=False))
def test_a_gang_says_how_many_of_its_workers_are_not_there(gang: list[Worker], order: Random) -> None:
    pods = [pod for index, worker in enumerate(gang) for pod in worker.pods(index)]
    order.shuffle(pods)
    # Restarts are by pod, so that a gang may have failed pods beside the next ones.
    job = make_job(workers=len(gang), backoffLimit=9)
    found = reconcile(see(job, *pods, child=make_child(job))).status
    absent = sum(not worker.is_there for worker in gang)
    if found.phase not in {"Starting", "Running"}:
        return
    runs = any(worker.now == "Running" for worker in gang)
    if not runs:
        waits = any(worker.now == "Pending" for worker in gang) or not any(worker.is_there for worker in gang)
        assert (found.phase == "Starting") == waits
        return
    assert found.phase == "Running"
    assert (found.reason == "GangWaiting") == bool(absent), found.message
    assert not absent or found.message.startswith(f"{absent} of {len(gang)} workers wait")
