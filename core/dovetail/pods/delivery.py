"""How containers get their devices: by NVIDIA's runtime, or by the NRI plugin of NVIDIA's container toolkit.

With `RuntimeClass`, pods run in the class `nvidia`, whose runtime reads a variable. With `NRI`, pods name no class: the
Binding carries an annotation for each container, from which the plugin reads the names of CDI devices. The chart's
policies let only the extender write these annotations, and only in a Binding.
"""

from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.reasons import start as says
from dovetail.gpu.device_plugins import Delivery
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import Allocation
from dovetail.pods.containers import parts_of

Manifest = dict[str, Any]
RUNTIME_CLASS: Final[Delivery] = "RuntimeClass"
# Kubernetes allows 63 characters after the slash of an annotation's name.
_LONGEST_NAME: Final = 63 - len(names.CDI_CONTAINER.partition("/")[2])


def of_pod(spec: Manifest, *, delivery: Delivery) -> Manifest:
    """The completed spec of a pod, without Dovetail's RuntimeClass where the plugin gives the devices."""
    if delivery == RUNTIME_CLASS or spec.get("runtimeClassName") != names.RUNTIME_CLASS:
        return spec
    return {key: value for key, value in spec.items() if key != "runtimeClassName"}


def of_job(job: Manifest, *, delivery: Delivery) -> Manifest:
    """A batch Job with such pods."""
    if delivery == RUNTIME_CLASS:
        return job
    template = job["spec"]["template"]
    spec = of_pod(template["spec"], delivery=delivery)
    return {**job, "spec": {**job["spec"], "template": {**template, "spec": spec}}}


def annotations_for_plugin(allocation: Allocation, *, pod: Pod, delivery: Delivery) -> dict[str, str]:
    """The annotations of the Binding from which the plugin reads each container's devices; none without the plugin."""
    if delivery == RUNTIME_CLASS:
        return {}
    devices = {each.index: each.devices for each in allocation.containers}
    asked = parts_of(pod)
    texts = {}
    for index, container in enumerate([*pod.spec.containers, *(pod.spec.init_containers or ())]):
        source = asked.source(index)
        if source is not None and source in devices:
            found = (f"{names.CDI_NVIDIA}={device.uuid}" for device in devices[source])
            texts[f"{names.CDI_CONTAINER}{container.name}"] = ",".join(found)
    return texts


def refuse_long_names(pod: Pod, *, delivery: Delivery) -> None:
    """Raise `RequestError` for a container whose devices no annotation can name."""
    if delivery == RUNTIME_CLASS:
        return
    asked = parts_of(pod)
    for index, container in enumerate([*pod.spec.containers, *(pod.spec.init_containers or ())]):
        if asked.source(index) is not None and len(container.name) > _LONGEST_NAME:
            raise RequestError(
                container.name,
                field="container",
                problem=says.NAME_TOO_LONG(most=_LONGEST_NAME),
                example="main",
            )
