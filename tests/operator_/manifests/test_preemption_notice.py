"""The file that shows a pod when it is preempted: mounted once, and never over a user's own."""

from typing import Any

import pytest

from dovetail import names
from dovetail_operator.manifests.batch_job import with_notice

FIELD = "metadata.annotations['dovetail.dev/preempting-at']"


def spec(*, volumes: Any = None, mounts: Any = None) -> dict[str, Any]:
    """A pod of two containers with these volumes, and these mounts in the first one."""
    first = {"name": "main"} | ({} if mounts is None else {"volumeMounts": mounts})
    return {"containers": [first, {"name": "side"}]} | ({} if volumes is None else {"volumes": volumes})


@pytest.mark.parametrize(("volumes", "mounts"), [(None, None), ([{"name": "own"}], [{"mountPath": "/own"}])])
def test_the_first_container_gets_the_file_next_to_its_own_mounts(volumes: Any, mounts: Any) -> None:
    found = with_notice(spec(volumes=volumes, mounts=mounts))
    *own, volume = found["volumes"]
    assert own == (volumes or [])
    item = {"path": "preempting-at", "fieldRef": {"apiVersion": "v1", "fieldPath": FIELD}}
    assert volume == {"name": names.NOTICE_VOLUME, "downwardAPI": {"items": [item]}}
    first, second = found["containers"]
    *kept, mount = first["volumeMounts"]
    assert kept == (mounts or [])
    assert mount == {"name": names.NOTICE_VOLUME, "mountPath": "/etc/dovetail", "readOnly": True}
    assert second == {"name": "side"}


@pytest.mark.parametrize(
    "taken",
    [
        spec(volumes=[{"name": "other"}, {"name": names.NOTICE_VOLUME}]),
        spec(mounts=[{"mountPath": "/other"}, {"mountPath": names.NOTICE_FOLDER}]),
    ],
    ids=["the volume's name", "the mount's path"],
)
def test_a_pod_that_uses_the_place_itself_is_left_as_it_is(taken: dict[str, Any]) -> None:
    assert with_notice(taken) is taken
