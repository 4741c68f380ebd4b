"""Checks the pod templates of a new guest as the pods that its controller makes of them. Pure.

A pod that is refused later would be named only in an event of the controller, after the guest has waited for its turn.
"""

from collections.abc import Iterable

from dovetail.api.gpujob import Policy
from dovetail.decoding import UnreadableError
from dovetail.gpu.device_plugins import Delivery, Vendors
from dovetail.gpu.request import RequestError
from dovetail.jobs.guests.kind import GuestError, Path, PodSet
from dovetail_webhook import mutation


def refuse_impossible_pods(sets: Iterable[PodSet], *, policy: Policy, vendors: Vendors, delivery: Delivery) -> None:
    """Check that the webhook admits the pods of these templates. Raises `GuestError`."""
    for each in sets:
        where = _written(each.path)
        if each.template.spec.get("nodeName"):
            # The API server refuses a pod with a node and a gate.
            raise GuestError(f"{where}.spec.nodeName is set: a pod in the queue gets its node when it starts")
        metadata = {"labels": each.template.labels, "annotations": each.template.annotations}
        try:
            pod = mutation.pod_with(metadata, spec=each.template.spec)
            mutation.patch_of_pod(pod, subresource="", policy=policy, vendors=vendors, delivery=delivery)
        except (RequestError, UnreadableError) as error:
            raise GuestError(f"{where}: its pods would be refused: {error}") from error


def _written(path: Path) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
