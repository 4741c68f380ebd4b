"""Where each kind lives in the API: group, version, plural, scope. Data and paths only."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from dovetail import names

# What `quote` leaves as it is: nearly every name.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of object in the API; `group` is empty for the core group."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects carry it: `batch/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The URL's path. A namespaced kind without a namespace is the list over all namespaces."""
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, but {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural} {name!r} needs a namespace")
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = ["namespaces", namespace, self.plural] if namespace else [self.plural]
        parts += [part for part in (name, subresource) if part]
        quoted = [part if _PLAIN.fullmatch(part) else quote(part, safe="") for part in parts]
        return "/".join([root, self.version, *quoted])


PODS: Final = Resource(plural="pods", kind="Pod")
NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False)
NAMESPACES: Final = Resource(plural="namespaces", kind="Namespace", namespaced=False)
CONFIGMAPS: Final = Resource(plural="configmaps", kind="ConfigMap")
SECRETS: Final = Resource(plural="secrets", kind="Secret")
SERVICES: Final = Resource(plural="services", kind="Service")
SERVICEACCOUNTS: Final = Resource(plural="serviceaccounts", kind="ServiceAccount")
EVENTS: Final = Resource(plural="events", kind="Event")
JOBS: Final = Resource(group="batch", plural="jobs", kind="Job")
LEASES: Final = Resource(group="coordination.k8s.io", plural="leases", kind="Lease")
CSISTORAGECAPACITIES: Final = Resource(group="storage.k8s.io", plural="csistoragecapacities", kind="CSIStorageCapacity")
RESOURCEQUOTAS: Final = Resource(plural="resourcequotas", kind="ResourceQuota")
PODDISRUPTIONBUDGETS: Final = Resource(group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget")
PRIORITYCLASSES: Final = Resource(
    group="scheduling.k8s.io", plural="priorityclasses", kind="PriorityClass", namespaced=False
)
RUNTIMECLASSES: Final = Resource(group="node.k8s.io", plural="runtimeclasses", kind="RuntimeClass", namespaced=False)
CRDS: Final = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
ROLEBINDINGS: Final = Resource(group="rbac.authorization.k8s.io", plural="rolebindings", kind="RoleBinding")
CLUSTERROLEBINDINGS: Final = Resource(
    group="rbac.authorization.k8s.io", plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False
)
SELFSUBJECTACCESSREVIEWS: Final = Resource(
    group="authorization.k8s.io", plural="selfsubjectaccessreviews", kind="SelfSubjectAccessReview", namespaced=False
)
SELFSUBJECTREVIEWS: Final = Resource(
    group="authentication.k8s.io", plural="selfsubjectreviews", kind="SelfSubjectReview", namespaced=False
)
GPUJOBS: Final = Resource(group=names.GROUP, version=names.VERSION, plural="gpujobs", kind="GPUJob")
GPUNODES: Final = Resource(
    group=names.GROUP, version=names.VERSION, plural="gpunodes", kind="GPUNode", namespaced=False
)
GPUQUOTAS: Final = Resource(
    group=names.GROUP, version=names.VERSION, plural="gpuquotas", kind="GPUQuota", namespaced=False
)
GPUNODETENANTS: Final = Resource(
    group=names.GROUP, version=names.VERSION, plural="gpunodetenants", kind="GPUNodeTenants", namespaced=False
)
HISTORYQUERIES: Final = Resource(group=names.GROUP, version=names.VERSION, plural="historyqueries", kind="HistoryQuery")
NODEPOOLS: Final = Resource(group="karpenter.sh", version="v1", plural="nodepools", kind="NodePool", namespaced=False)
PROVISIONINGREQUESTS: Final = Resource(
    group="autoscaling.x-k8s.io", version="v1", plural="provisioningrequests", kind="ProvisioningRequest"
)
PODTEMPLATES: Final = Resource(plural="podtemplates", kind="PodTemplate")
# The newest first; the fields that are read are the same in all of them.
RESOURCESLICES: Final = tuple(
    Resource(group="resource.k8s.io", version=version, plural="resourceslices", kind="ResourceSlice", namespaced=False)
    for version in ("v1", "v1beta2", "v1beta1")
)
