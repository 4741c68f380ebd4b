"""The fields of a pod that a kubelet reads, beyond those that Dovetail's other parts read. Data only."""

from msgspec import field

from dovetail.api.builtin import EnvVar, FieldRef, Resources
from dovetail.api.meta import Described, ObjectMeta


class Mount(Described, frozen=True, kw_only=True):
    """Where a container has a volume."""

    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""


class Item(Described, frozen=True, kw_only=True):
    """One key of an object as a file of a volume."""

    key: str
    path: str
    mode: int | None = None


class FilesOf(Described, frozen=True, kw_only=True):
    """The ConfigMap (`name`) or Secret (`secret_name`) whose keys are the files of a volume."""

    name: str = ""
    secret_name: str = ""
    items: list[Item] = []
    default_mode: int | None = None
    optional: bool = False


class FieldItem(Described, frozen=True, kw_only=True):
    """One field of the pod as a file of a volume."""

    path: str
    field_ref: FieldRef | None = None
    mode: int | None = None


class FieldsOf(Described, frozen=True, kw_only=True):
    """The fields of the pod that are the files of a volume."""

    items: list[FieldItem] = []
    default_mode: int | None = None


class Volume(Described, frozen=True, kw_only=True):
    """A volume of a pod: one of the kinds that can be a folder here, or none of them."""

    name: str
    empty_dir: dict[str, object] | None = None
    config_map: FilesOf | None = None
    secret: FilesOf | None = None
    downward_api: FieldsOf | None = field(default=None, name="downwardAPI")


class ConfigMapFiles(Described, frozen=True, kw_only=True):
    """The values of a ConfigMap."""

    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}

    @property
    def by_key(self) -> dict[str, bytes]:
        """All values."""
        return {**{key: text.encode() for key, text in self.data.items()}, **self.binary_data}


class SecretFiles(Described, frozen=True, kw_only=True):
    """The values of a Secret."""

    data: dict[str, bytes] = {}

    @property
    def by_key(self) -> dict[str, bytes]:
        """All values."""
        return self.data


class Container(Described, frozen=True, kw_only=True):
    """A container: here, one process with its children."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvVar] = []
    env_from: list[dict[str, object]] = []
    resources: Resources = Resources()
    volume_mounts: list[Mount] = []


class LocalPodSpec(Described, frozen=True, kw_only=True):
    """What a pod runs."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    volumes: list[Volume] = []
    termination_grace_period_seconds: int | None = None


class LocalPodStatus(Described, frozen=True, kw_only=True):
    """How a pod is."""

    phase: str = ""
    start_time: str | None = None


class LocalMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata with the grace period of a deletion."""

    deletion_grace_period_seconds: int | None = None


class Submitted(Described, frozen=True, kw_only=True):
    """What is read of a GPUJob: its annotations name its submitter."""

    metadata: ObjectMeta = ObjectMeta()


class LocalPod(Described, frozen=True, kw_only=True):
    """A pod that is bound to the local node."""

    metadata: LocalMeta = field(default_factory=LocalMeta)
    spec: LocalPodSpec = LocalPodSpec()
    status: LocalPodStatus = LocalPodStatus()
