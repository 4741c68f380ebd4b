"""What is decided for a user who sees one tenant is what is decided for the same user who sees all."""

import re
from typing import Any

import pytest

from tests.gateway.canary import counted
from tests.gateway.canary.expected import differences
from tests.gateway.canary.objects import TENANTS, Tenant
from tests.gateway.canary.rbac import RbacApiServer
from tests.gateway.served import Face

TEMPLATE = {"spec": {"containers": [{"name": "m", "image": "x"}]}}
ASKED: list[dict[str, Any]] = [
    {"gpu": 1},
    {"gpu": 1, "workers": 2, "priority": 255},
    {"gpu": "0.5", "priority": 200},
    {"gpu": "3g.40gb"},
    {"gpu": 1, "workers": 4, "minWorkers": 1, "activeDeadlineSeconds": 600},
]
# Sentences name others, or `another tenant`: their numbers count.
_TEXTS = {"message", "summary", "text", "basis", "notes"}


@pytest.mark.parametrize("tenant", TENANTS, ids=lambda tenant: tenant.word)
async def test_a_decision_depends_on_no_name_that_is_hidden(cluster: RbacApiServer, face: Face, tenant: Tenant) -> None:
    own = [each["metadata"]["name"] for each in counted.jobs(cluster, frozenset({tenant.namespace}))]
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/api/v3/dry-run", {"namespace": tenant.namespace, "spec": {**spec, "template": TEMPLATE}})
        for spec in ASKED
    ]
    asked += [
        ("GET", path.format(f"{tenant.namespace}/{name}"), None)
        for name in own
        for path in ("/api/v3/jobs/{}/explain", "/api/v3/moves?jobs={}")
    ]
    asked.append(("GET", "/api/v3/moves?jobs=" + ",".join(f"{tenant.namespace}/{name}" for name in own[:20]), None))
    asked += [
        ("POST", f"/api/v3/jobs/{tenant.namespace}/{name}/effects", change)
        for name, change in (("train", {"cancel": True}), ("waits", {"held": True}), ("common", {"priority": 255}))
    ]
    wrong = list[str]()
    for method, path, body in asked:
        options = {} if body is None else {"json": body}
        some, every = [
            await face.ask(method, path, token=f"{tenant.word}-{token}", **options) for token in ("token", "all-token")
        ]
        assert (some.status, every.status) == (200, 200), (path, some.text, every.text)
        at = f"{path} {body and body.get('spec', body)} "
        wrong += differences(
            decided(some.json, namespace=tenant.namespace), decided(every.json, namespace=tenant.namespace), at=at
        )
    assert not wrong, "\n".join(wrong)


def decided(answer: Any, *, namespace: str) -> Any:
    """What an answer decides, and the sums of what it names of each tenant."""
    if isinstance(answer, list):
        return [decided(each, namespace=namespace) for each in answer]
    if not isinstance(answer, dict):
        return answer
    found = {
        key: _amounts(value) if key in _TEXTS else decided(value, namespace=namespace) for key, value in answer.items()
    }
    if "parameters" in found:
        # Of a clause, which is a part of one of those sentences.
        found["parameters"] = {name: _amounts(value) for name, value in answer["parameters"].items()}
    for kind in ("shifted", "victims", "cancelled", "released", "heldUp"):
        if kind in found:
            found[kind] = [each for each in found[kind] if each.get("job", each)["namespace"] == namespace]
    if "otherVictims" in found:
        found["allVictims"] = found.pop("otherVictims") + len(answer["victims"])
    # Only who sees everything gets what is around a job, and what budgets allow of the pods of others.
    for own in ("othersSooner", "othersLater", "around"):
        found.pop(own, None)
    if "lostDeviceSeconds" in found:
        found.pop("notes", None)
        # Of a row of a move, whose job may be of another tenant.
        found |= {} if "moves" not in found or isinstance(found["moves"], list) else {"job": None}
    return found


def _amounts(text: Any) -> Any:
    """The amounts in a sentence, without the numbers of jobs."""
    return re.findall(
        r"\d+", re.sub(r"\b(?:job|pod|namespace|user) \S+|another tenant|[a-z]+(?:-[a-z0-9]+)+", "", str(text))
    )
