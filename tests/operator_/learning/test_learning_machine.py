"""What is learned over time as a state machine: runs come, are let go, end in every way, and go, in any order.

The model remembers every run that ever taught, and who noted it: a run is known as long as its GPUJob is there, or one
that was told of it.
"""

from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dovetail.api.gpujob import GPUJob
from dovetail.jobs.memory_use import HISTORY, MARGIN_PERCENT, Learning
from tests.operator_.builders import at, make_job, make_state

DEVICE_MIB = 31129


class LearningMachine(RuleBasedStateMachine):
    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.learning = Learning()
        self.state = make_state(a=1)
        self.jobs: dict[str, GPUJob] = {}
        self.count = 0

    @rule(target=runs)
    def submit(self) -> str:
        """The newest run notes all that is known when it is let go."""
        self.count += 1
        name = f"train-{self.count}"
        meta = {"generateName": "train-", "creationTimestamp": at(self.count * 3600), "resourceVersion": "1"}
        job = make_job(name, meta=meta, gpu="0.5", memory={"strategy": "Dynamic"})
        self.learning.observe(job)
        use = self.learning.use_of(job, ask=self.state.requests.ask_of(job), child=None, most_mib=lambda: DEVICE_MIB)
        assert use is not None
        self._put(job, memory=use)
        return name

    @rule(
        name=runs,
        peak=st.integers(1, 20000),
        limited=st.booleans(),
        phase=st.sampled_from(["Succeeded", "Failed", "TimedOut", "Cancelled"]),
        seconds=st.integers(1, 600),
    )
    def end(self, name: str, peak: int, limited: bool, phase: Any, seconds: int) -> None:
        job = self.jobs[name]
        if job.status.phase is not None:
            return
        assert job.status.memory is not None
        used = msgspec.structs.replace(job.status.memory, peak_mib=peak, limited=limited)
        self._put(job, memory=used, phase=phase, start_time=at(0), completion_time=at(seconds))

    @rule(name=consumes(runs))
    def delete(self, name: str) -> None:
        self.learning.drop(self.jobs.pop(name))

    def _put(self, job: GPUJob, **status: Any) -> None:
        job = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, **status))
        self.jobs[job.metadata.name] = job
        self.learning.observe(job)

    def _next(self, learning: Learning) -> Any:
        job = make_job("next", meta={"generateName": "train-"}, gpu="0.5", memory={"strategy": "Dynamic"})
        return learning.use_of(job, ask=self.state.requests.ask_of(job), child=None, most_mib=lambda: DEVICE_MIB)

    @invariant()
    def a_restart_knows_every_run_whose_job_or_witness_is_there(self) -> None:
        anew = Learning()
        for job in self.jobs.values():
            anew.observe(job)
        known = {run.uid for run in self._next(anew).earlier_runs}
        assert known <= {run.uid for run in self._next(self.learning).earlier_runs} or len(known) == HISTORY
        taught = [
            job.metadata.uid
            for job in self.jobs.values()
            if job.status.phase in {"Succeeded", "TimedOut"}
            and job.status.memory is not None
            and not job.status.memory.limited
            and job.status.completion_time >= at(60)  # type: ignore[operator]
        ]
        assert len(known) == HISTORY or set(taught) <= known

    @invariant()
    def an_estimate_is_the_highest_peak_since_the_last_limit_and_a_tenth(self) -> None:
        use = self._next(self.learning)
        peaks = []
        for run in use.earlier_runs:
            if run.limited:
                break
            peaks.append(run.peak_mib)
        created = [run.created for run in use.earlier_runs]
        assert created == sorted(created, reverse=True)
        assert len(use.earlier_runs) <= HISTORY
        assert use.estimate_mib == (max(peaks) * MARGIN_PERCENT // 100 if peaks else None)

    @invariant()
    def nothing_is_known_without_a_job(self) -> None:
        if not self.jobs:
            assert self._next(self.learning).earlier_runs == []


TestLearning = LearningMachine.TestCase
TestLearning.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
