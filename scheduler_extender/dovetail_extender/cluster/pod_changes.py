"""Changes of pods that change nothing here: kubelet reports the status of a bound pod several times. Pure."""

from dovetail.api.builtin import Pod, is_terminated
from dovetail.cluster.view import ClusterView


def is_noise(old: Pod, *, new: Pod, view: ClusterView) -> bool:
    """Whether no handler has to see the change from `old` to `new`, two states of one pod.

    That is so if the pod was bound before, has not ended, differs only in status fields that no handler reads, and if
    the ledger has its claim. If the claim was dropped for whatever reason, the next change brings it back.
    """
    return (
        bool(new.spec.node_name)
        and not is_terminated(old)
        and not is_terminated(new)
        and old.spec == new.spec
        and _said(old) == _said(new)
        and view.has_claim(new)
    )


def _said(pod: Pod) -> tuple[object, ...]:
    """What handlers read of a bound pod besides its spec and whether it has ended."""
    meta = pod.metadata
    claims = pod.status.extended_resource_claim_status
    return meta.uid, meta.deletion_timestamp, meta.annotations, meta.labels, meta.owner_references, claims
