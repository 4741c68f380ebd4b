"""Index of pods: their owners, which are being deleted, and which devices kubelet gave them.

No I/O.
"""

from collections.abc import Container, Iterable, KeysView, Sequence

from dovetail import names
from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.devices import AllocatedDevice
from dovetail.api.meta import EventType
from dovetail.engine.ledger.ledger import Ledger
from dovetail.pods.tenancy import job_it_was_of, run_of


class JobPods:
    """The pods of GPUJobs, and all pods that are being deleted.

    Pass every pod event to `changed`.
    """

    def __init__(self) -> None:
        # All pods that belong to a GPUJob, by its key; and that key by the pod's UID.
        self._labelled: dict[str, dict[str, Pod]] = {}
        self._keys: dict[str, str] = {}
        # Those that a batch Job controls, by its UID and their own.
        self._of_child: dict[str, dict[str, Pod]] = {}
        # The same as a tuple for each batch Job, for callers that ask often while nothing changes.
        self._listed: dict[str, tuple[Pod, ...]] = {}
        # Pods of any owner that are being deleted, by UID.
        self._going: dict[str, Pod] = {}
        # The devices that kubelet gave to pods that request a vendor's resource, by pod UID, until the pod is deleted.
        self._given: dict[str, tuple[AllocatedDevice, ...]] = {}

    def changed(self, type_: EventType, *, pod: Pod) -> str | None:
        """Record a pod event. Returns the key of the pod's GPUJob, None for a pod of no GPUJob."""
        self._note_going(type_, pod=pod)
        uid = pod.metadata.uid
        # A pod remains its job's even if its label is removed.
        key = self._keys.get(uid) or _key_of(pod)
        if key is None:
            return None
        owner, before = _controller_of(pod), self._labelled.get(key, {}).get(uid)
        if type_ == "DELETED" or (before is not None and _controller_of(before) != owner):
            self._forget(uid, key=key)
        if type_ == "DELETED":
            self._given.pop(uid, None)
            return key
        self._keys[uid] = key
        self._labelled.setdefault(key, {})[uid] = pod
        if owner is not None:
            self._of_child.setdefault(owner, {})[uid] = pod
            self._listed.pop(owner, None)
        return key

    def _forget(self, uid: str, *, key: str) -> None:
        """Drop a pod that is deleted or has a new controller."""
        if self._keys.pop(uid, None) is None:
            return
        known = self._labelled[key]
        owner = _controller_of(known.pop(uid))
        if not known:
            del self._labelled[key]
        if owner is None:
            return
        del self._of_child[owner][uid]
        self._listed.pop(owner, None)
        if not self._of_child[owner]:
            del self._of_child[owner]

    def _note_going(self, type_: EventType, *, pod: Pod) -> None:
        if type_ != "DELETED" and pod.metadata.deletion_timestamp:
            self._going[pod.metadata.uid] = pod
        else:
            self._going.pop(pod.metadata.uid, None)

    def note_given(self, uids: Iterable[str], *, ledger: Ledger) -> None:
        """Keep the devices that kubelet gave to those of these pods that belong to GPUJobs.

        Kubelet reports them only while the pod runs.
        """
        for uid in uids:
            claim = ledger.claim(uid)
            if uid in self._keys and claim is not None and claim.resource and claim.devices:
                self._given[uid] = claim.devices

    def given(self, pods: Sequence[Pod]) -> dict[str, tuple[AllocatedDevice, ...]]:
        """The devices that kubelet gave each pod, by UID; empty where Dovetail chose the devices."""
        return {pod.metadata.uid: self._given.get(pod.metadata.uid, ()) for pod in pods}

    def pods_of(self, child: Job | None) -> tuple[Pod, ...]:
        """The pods of a batch Job. Returns the identical tuple as long as none of them has changed."""
        return () if child is None else self.of_run(child.metadata.uid)

    def of_run(self, uid: str) -> tuple[Pod, ...]:
        """The pods of the batch Job, or with a seat of the record, of this UID: identical while none has changed."""
        pods = self._of_child.get(uid)
        if pods is None:
            return ()
        listed = self._listed.get(uid)
        if listed is None:
            listed = self._listed[uid] = tuple(pods.values())
        return listed

    def named(self, key: str) -> list[Pod]:
        """The pods of all batch Jobs that the GPUJob with this key has had."""
        return [pod for pod in self._labelled.get(key, {}).values() if _controller_of(pod) is not None]

    def left_over(self, key: str, *, number: int, child: Job | None) -> list[Pod]:
        """Unfinished pods of the job with this key and number that `child` does not control."""
        return [
            pod
            for pod in self._labelled.get(key, {}).values()
            if not is_terminated(pod)
            and pod.metadata.labels.get(names.LABEL_JOB_NUMBER) == str(number)
            and (child is None or _controller_of(pod) != child.metadata.uid)
        ]

    def known(self, uid: str) -> Pod | None:
        """The stored version of a GPUJob's pod; None for any other pod."""
        return self._labelled.get(self._keys.get(uid, ""), {}).get(uid)

    def count(self, key: str) -> int:
        """How many pods the GPUJob with this key has."""
        return len(self._labelled.get(key, ()))

    @property
    def keys(self) -> KeysView[str]:
        """The keys of the GPUJobs that have pods."""
        return self._labelled.keys()

    def are_there(self, key: str) -> bool:
        """Whether any pod of the GPUJob with this key exists."""
        return key in self._labelled

    def leaving(self, *, running: Container[str]) -> list[Pod]:
        """Pods that are being deleted, and pods of batch Jobs whose UIDs are not in `running`.

        A pod that its deleted owner has left behind goes on.
        """
        left = [pod for owner, pods in self._of_child.items() if owner not in running for pod in pods.values()]
        return [
            *self._going.values(),
            *(pod for pod in left if pod.metadata.uid not in self._going and pod.metadata.owner_references),
        ]

    def job_of(self, uid: str) -> str | None:
        """The key of the GPUJob that the pod belongs to; None for a pod of no GPUJob."""
        return self._keys.get(uid)


def _key_of(pod: Pod) -> str | None:
    name = job_it_was_of(pod)
    return f"{pod.metadata.namespace}/{name}" if name else None


def _controller_of(pod: Pod) -> str | None:
    return run_of(pod) or None
