"""Which pods there are: whose they are, which of them leave, and what kubelet gave them. No I/O."""

from collections.abc import Container, Iterable, Sequence

from dovetail import names
from dovetail.engine.claims import DeviceClaim
from dovetail.engine.ledger import Ledger
from dovetail.kube.objects import Job, Pod
from dovetail.kube.reflector import EventType


class JobPods:
    """The pods of GPUJobs, and whatever pod is being deleted. Feed it every change of a pod."""

    def __init__(self) -> None:
        # By the UID of their batch Job, and their own.
        self._of_child: dict[str, dict[str, Pod]] = {}
        # The same by their batch Job alone, for who asks again and again while nothing changes.
        self._listed: dict[str, tuple[Pod, ...]] = {}
        self._job_of: dict[str, str] = {}
        # Pods that are being deleted, of whomever, by UID.
        self._going: dict[str, Pod] = {}
        # What kubelet gave to pods that asked a vendor's resource, by their UIDs, until they are gone.
        self._given: dict[str, tuple[DeviceClaim, ...]] = {}

    def changed(self, type_: EventType, pod: Pod) -> str | None:
        """A pod has changed; the key of its GPUJob, None for a pod that belongs to none."""
        self._note_going(type_, pod)
        name, owner = pod.metadata.labels.get(names.LABEL_JOB), _controller_of(pod)
        if name is None or owner is None:
            return None
        key, uid = f"{pod.metadata.namespace}/{name}", pod.metadata.uid
        siblings = self._of_child.setdefault(owner, {})
        self._listed.pop(owner, None)
        if type_ == "DELETED":
            siblings.pop(uid, None)
            self._job_of.pop(uid, None)
            self._given.pop(uid, None)
        else:
            siblings[uid] = pod
            self._job_of[uid] = key
        if not siblings:
            del self._of_child[owner]
        return key

    def _note_going(self, type_: EventType, pod: Pod) -> None:
        if type_ != "DELETED" and pod.metadata.deletion_timestamp:
            self._going[pod.metadata.uid] = pod
        else:
            self._going.pop(pod.metadata.uid, None)

    def note_given(self, uids: Iterable[str], *, ledger: Ledger) -> None:
        """Remember what kubelet gave those of these pods that are GPUJobs': it tells while they run, not after."""
        for uid in uids:
            claim = ledger.claim(uid)
            if uid in self._job_of and claim is not None and claim.resource and claim.devices:
                self._given[uid] = claim.devices

    def given(self, pods: Sequence[Pod]) -> dict[str, tuple[DeviceClaim, ...]]:
        """What kubelet gave each of them, by UID; nothing where Dovetail chose the devices."""
        return {pod.metadata.uid: self._given.get(pod.metadata.uid, ()) for pod in pods}

    def of(self, child: Job | None) -> tuple[Pod, ...]:
        """The pods of a batch Job; the very same tuple as long as none of them has changed."""
        pods = self._of_child.get(child.metadata.uid) if child is not None else None
        if child is None or pods is None:
            return ()
        listed = self._listed.get(child.metadata.uid)
        if listed is None:
            listed = self._listed[child.metadata.uid] = tuple(pods.values())
        return listed

    def named(self, key: str) -> list[Pod]:
        """The pods of all batch Jobs that the GPUJob of that key has had."""
        every = (pod for pods in self._of_child.values() for pod in pods.values())
        return [pod for pod in every if self._job_of.get(pod.metadata.uid) == key]

    def leaving(self, *, running: Container[str]) -> list[Pod]:
        """Pods that are being deleted, and those of batch Jobs whose UIDs are not among the `running`."""
        left = [pod for owner, pods in self._of_child.items() if owner not in running for pod in pods.values()]
        return [*self._going.values(), *(pod for pod in left if pod.metadata.uid not in self._going)]

    def job_of(self, uid: str) -> str | None:
        """The key of the GPUJob whose pod that is; None for a pod of none."""
        return self._job_of.get(uid)

    def is_of_a_job(self, uid: str) -> bool:
        """Whether that is a GPUJob's pod."""
        return uid in self._job_of


def _controller_of(pod: Pod) -> str | None:
    return next((owner.uid for owner in pod.metadata.owner_references if owner.controller), None)
