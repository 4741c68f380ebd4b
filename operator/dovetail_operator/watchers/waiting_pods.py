"""Says in an event why a pod waits for GPUs, where kube-scheduler only says which sum was too small.

kube-scheduler compares sums before it calls the extender: `Insufficient dovetail.dev/gpu-milli`, also where no node
will ever have as many GPUs, and `Insufficient nvidia.com/gpu` for a pod that never asked Dovetail.
"""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.meta import EventType, key_of
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.events import OTHER_SCHEDULER
from dovetail.api.resources import PODS
from dovetail.decoding import UnreadableError, convert
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.kube.client import Client
from dovetail.kube.retry import BACKOFF
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.translation.resources import is_foreign
from dovetail.pods.translation.translate import remedy
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.state.state import State

_HANDS: Final = 2
# The resource is followed by a comma, by the end of the sentence, or by another one.
_SHORT_OF: Final = re.compile(r"Insufficient ([^\s,]*[^\s,.])")
# No claim has this key: the pod is not placed.
_KEY: Final = "waiting"


class WaitingPods:
    """Posts one event for each pod that kube-scheduler refuses by a sum; later changes of the pod cost nothing."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        nodes: Mapping[str, Node],
        post: Callable[[Announcement], None],
        rng: random.Random,
    ) -> None:
        self._client = client
        self._state = state
        self._nodes = nodes
        self._post = post
        self._rng = rng
        self._queue = WorkQueue()
        # The UIDs of waiting pods with an event.
        self._told: set[str] = set()

    def pod_event(self, type_: EventType, pod: Pod) -> None:
        """Look at a pod that changed, if it waits for a sum of GPUs."""
        uid = pod.metadata.uid
        if type_ == "DELETED" or pod.spec.node_name:
            self._told.discard(uid)
        elif uid not in self._told and _is_short(pod, vendors=self._state.store.view.vendors):
            self._queue.add(key_of(pod.metadata))

    async def run(self) -> None:
        """Look at waiting pods until cancelled."""
        await self._queue.serve(self._look_at, hands=_HANDS, failed=_failed, rng=self._rng, backoff=BACKOFF)

    async def _look_at(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        # The whole pod: the cache lacks what keeps it off nodes. The operator may list pods, and not read single ones.
        page = await self._client.list(
            PODS, as_type=dict[str, Any], namespace=namespace, field_selector=f"metadata.name={name}"
        )
        if not page.items:
            return
        raw = page.items[0]
        try:
            pod = convert(raw, as_type=Pod, strict=False)
            found = self._reason(pod, spec=raw.get("spec") or {})
        except (RequestError, QuantityError, UnreadableError):
            # What cannot be read has its sentence elsewhere: in explain, and from the webhook.
            return
        about = pod.metadata
        if found is None or about.uid in self._told:
            return
        self._told.add(about.uid)
        self._post(Announcement(about=about, of=PODS, severity="Warning", why=found))

    def _reason(self, pod: Pod, *, spec: Mapping[str, Any]) -> Sentence | None:
        """Why the pod waits; None if it waits no longer, or for something else.

        Raises `RequestError`, `QuantityError` and `UnreadableError` for a pod that cannot be read.
        """
        vendors = self._state.store.view.vendors
        if not _is_short(pod, vendors=vendors):
            return None
        if pod.spec.scheduler_name != names.SCHEDULER_NAME:
            is_managed = any(node.metadata.labels.get(names.LABEL_MANAGED) == "true" for node in self._nodes.values())
            said = remedy(pod, vendors=vendors) if is_managed else None
            return None if said is None else OTHER_SCHEDULER(remedy=said)
        ask = ask_of_pod(pod, ranking=DEFAULT_RANKING, vendors=vendors)
        if ask is None:
            return None
        view = self._state.store.view
        found = place(view.ledger, ask=ask, workers=1, key=_KEY, nodes=view.eligible_nodes(spec))
        return found if isinstance(found, Shortage) else None


def _is_short(pod: Pod, *, vendors: Vendors) -> bool:
    """Whether kube-scheduler has refused the pod for a resource by which GPUs are asked."""
    return any(
        condition.type == "PodScheduled" and condition.status == "False"
        and any(
            resource in names.MANAGED_RESOURCES or is_foreign(resource, vendors=vendors)
            for resource in _SHORT_OF.findall(condition.message)
        )
        for condition in pod.status.conditions
    )  # fmt: skip


def _failed(key: str, error: Exception, seconds: float) -> None:
    log_failure("why a pod waits is not said yet", error=error, wait=seconds, pod=key)
