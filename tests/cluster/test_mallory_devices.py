"""What an ordinary user tries in order to see devices that are not his, on the real API server.

The account has the role `edit` of one namespace. The Job controller makes the pods with a GPUJob's label, as it alone
may. The matrix is tried by dry runs, side by side; whatever is let in is judged by `tests/visibility.py`, which knows
kubelet's and the runtime's rules and none of ours.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from dovetail import names
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.mallory import (
    CLASSES,
    ENVIRONMENTS,
    OF_A_JOB,
    OTHER_CLASS,
    PLUGINS,
    VOID,
    harm,
    others_go_on,
    side_by_side,
    the_job_controller,
)
from tests.visibility import Manifest

pytestmark = pytest.mark.cluster

RESOURCES: Final = (*PLUGINS, "nvidia.com/anything", names.GPU_MILLI)
KINDS: Final = ("container", "init", "sidecar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pod of the matrix: its second container is the one that is tried."""

    amount: str
    resource: str
    environment: str
    is_labelled: bool
    runtime_class: str
    kind: str

    @property
    def is_nvidias(self) -> bool:
        """Whether NVIDIA's runtime runs the pod."""
        return self.runtime_class.startswith("nvidia") or self.runtime_class in CLASSES

    @property
    def is_completed(self) -> bool:
        """Whether the webhook sees the pod: it is on a class that it knows, or asks us, and has not a job's shape."""
        known = self.runtime_class.startswith("nvidia") or self.resource == names.GPU_MILLI
        has_variable = self.environment in {"all", "UUID", "void twice"}
        return known and not (self.is_labelled and has_variable)

    def pod(self) -> Manifest:
        """The pod as it is sent: `main` asks nothing and says so."""
        tried = {"name": "tried", "image": "none", **ENVIRONMENTS[self.environment]}
        tried["resources"] = {"limits": {self.resource: self.amount}}
        spec: Manifest = {"containers": [{"name": "main", "image": "none", "env": [VOID]}]}
        if self.kind == "container":
            spec["containers"].append(tried)
        else:
            spec["initContainers"] = [tried | ({"restartPolicy": "Always"} if self.kind == "sidecar" else {})]
        if self.resource == names.GPU_MILLI:
            spec["schedulerName"] = names.SCHEDULER_NAME
        if self.runtime_class:
            spec["runtimeClassName"] = self.runtime_class
        return {"metadata": {"name": "p", **(OF_A_JOB if self.is_labelled else {})}, "spec": spec}

    def may_come_in(self) -> bool:
        """Whether it is let in, perhaps completed."""
        if self.resource == names.GPU_MILLI:
            return self._asking_us_may_come_in()
        if not self.is_nvidias:
            return True
        if self.amount == "0":
            return False
        if self.resource in PLUGINS:
            # The variable is taken out where the webhook sees the pod; of envFrom nobody can tell what it brings.
            return self.environment == "absent" or (self.environment != "envFrom" and self.is_completed)
        return self.is_completed

    def _asking_us_may_come_in(self) -> bool:
        if not self.is_completed:
            return False
        if self.amount == "0":
            return True
        # A plain init container has no devices of its own, and a share runs in our class alone.
        return self.kind != "init" and self.runtime_class in {"", "nvidia"}


def cases() -> Iterator[Case]:
    axes = ("01", RESOURCES, ENVIRONMENTS, (False, True), ("nvidia", *CLASSES, OTHER_CLASS, ""), KINDS)
    for amount, resource, environment, is_labelled, runtime_class, kind in itertools.product(*axes):
        yield Case(
            amount=amount, resource=resource, environment=environment, is_labelled=is_labelled,
            runtime_class=runtime_class, kind=kind,
        )  # fmt: skip


async def test_no_pod_of_the_matrix_sees_a_device_that_it_was_not_given(
    mallory: Client, client: Client, namespace: str, sandbox: Cluster
) -> None:
    tried = list(cases())
    async with the_job_controller(client, sandbox=sandbox) as controller:
        pods = [(controller if case.is_labelled else mallory, case.pod()) for case in tried]
        answers = await side_by_side(pods, namespace=namespace)
    wrong = []
    for case, answer in zip(tried, answers, strict=True):
        if isinstance(answer, str):
            wrong += [f"{case}: refused: {answer}"] if case.may_come_in() else []
            wrong += [] if any(word in answer for word in SENTENCES) else [f"{case}: by another sentence: {answer}"]
        else:
            seen = harm(answer, nvidia=case.is_nvidias or answer["spec"].get("runtimeClassName") == "nvidia")
            wrong += [f"{case}: sees {seen}"] if seen else []
            wrong += [] if case.may_come_in() else [f"{case}: let in"]
    assert not wrong, f"{len(wrong)} of {len(tried)}:\n" + "\n".join(wrong[:20])
    await others_go_on(client)


# Each refusal says what is wrong with the container, in words of ours.
SENTENCES: Final = (
    "which gives it no", "must have NVIDIA_VISIBLE_DEVICES once", "must not set NVIDIA_VISIBLE_DEVICES",
    "schedulerName must be dovetail", "runs in the class nvidia", "uses the devices of a container that asks the same",
)  # fmt: skip
