from typing import Any

import pytest

from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.pods.demand import ask_of_job
from dovetail_operator.job.liveness_warning import warning_of
from tests.operator_.builders import make_job

PROBE = {"exec": {"command": ["true"]}}


def warned(mode: str, **containers: Any) -> str | None:
    """What a job hears whose containers have these fields."""
    listed = [{"name": name, "image": "busybox", **fields} for name, fields in containers.items()]
    job = make_job(gpu="8G,0.5", mode=mode, template={"spec": {"containers": listed}})
    found = warning_of(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING))
    return None if found is None else found.message


def test_a_job_that_takes_turns_is_warned_of_its_liveness_probes() -> None:
    message = warned("TimeShared", main={}, proxy={"livenessProbe": PROBE})
    assert message is not None
    assert message.startswith("Container proxy has a liveness probe")


@pytest.mark.parametrize(
    ("mode", "fields"),
    [("Fractional", {"livenessProbe": PROBE}), ("TimeShared", {"readinessProbe": PROBE}), ("TimeShared", {})],
)
def test_all_others_hear_nothing(mode: str, fields: dict[str, Any]) -> None:
    assert warned(mode, main=fields) is None
