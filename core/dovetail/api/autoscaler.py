"""The cluster autoscaler's ProvisioningRequest (autoscaling.x-k8s.io/v1), as far as it is read. Data only."""

from dovetail.api.builtin import Condition
from dovetail.api.meta import Described, ObjectMeta


class ProvisioningRequestStatus(Described, frozen=True, kw_only=True):
    """How far the autoscaler is with a request."""

    conditions: list[Condition] = []


class ProvisioningRequest(Described, frozen=True, kw_only=True):
    """A request for the nodes of all pods of a job at once."""

    metadata: ObjectMeta
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
