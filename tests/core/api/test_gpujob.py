from typing import get_args

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, Phase, is_finished
from tests.core.builders import make_job


def _in_phase(phase: Phase | None) -> GPUJob:
    job = make_job()
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase=phase))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled", "TimedOut"])
def test_a_job_in_a_final_phase_is_finished(phase: Phase) -> None:
    assert is_finished(_in_phase(phase))


@pytest.mark.parametrize("phase", [None, "Queued", "Held", "Starting", "Running", "Suspended", "Preempted"])
def test_a_job_that_waits_or_runs_is_not_finished(phase: Phase | None) -> None:
    assert not is_finished(_in_phase(phase))


def test_four_phases_are_final() -> None:
    assert sum(is_finished(_in_phase(phase)) for phase in get_args(Phase)) == 4
