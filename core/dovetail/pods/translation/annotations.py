"""Annotations of other systems: HAMi's choice of devices and nodes, and KAI's fractions of GPUs. Pure.

HAMi (https://project-hami.io/docs/userguide/nvidia-device): `use-gputype` and `nouse-gputype` admit or exclude the
devices whose model's name contains one of some words. KAI (docs/gpu-sharing of kai-scheduler/KAI-Scheduler): a
fraction, or MiB, of one or several GPUs, for one container of the pod.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dovetail.api.builtin import Container, Pod
from dovetail.api.gpujob import Policy
from dovetail.api.reasons import start as says
from dovetail.formats.quantities import read_whole
from dovetail.gpu.device_plugins import MANAGED_VENDOR
from dovetail.gpu.models import known_families, normalise
from dovetail.gpu.request import MAX_COUNT, MAX_MEMORY_MIB, GPURequest, RequestError, check_length, parse
from dovetail.pods.containers import every_container
from dovetail.pods.translation.resources import Asked

_USE_TYPE: Final = "nvidia.com/use-gputype"
_NO_TYPE: Final = "nvidia.com/nouse-gputype"
_USE_UUID: Final = "nvidia.com/use-gpuuuid"
_NO_UUID: Final = "nvidia.com/nouse-gpuuuid"
_SHARING: Final = "nvidia.com/vgpu-mode"
# The policy for nodes first: it decides more than the one for the devices of a node.
_POLICIES: Final = ("hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy")
_POLICY_OF: Final[Mapping[str, Policy]] = {"spread": "Spread", "binpack": "Pack"}

_FRACTION: Final = "gpu-fraction"
_MEMORY: Final = "gpu-memory"
_DEVICES: Final = "gpu-fraction-num-devices"
_CONTAINER: Final = "gpu-fraction-container-name"
# The schedulers of these systems. A pod that asks in their words, and Dovetail to translate them, leaves them.
SCHEDULERS: Final = frozenset({"kai-scheduler", "hami-scheduler"})


def of_kind(request: GPURequest, *, annotations: Mapping[str, str]) -> GPURequest:
    """The request, of the models that HAMi's annotations admit. Raises `RequestError`."""
    for key, instead in {
        _USE_UUID: "dovetail.dev/gpu: 1@NODE/cuda:N, a device by its node and index",
        _NO_UUID: "dovetail cordon GPU-5c89…, which keeps a device from all pods",
    }.items():
        if text := annotations.get(key):
            raise RequestError(text, field=key, problem=says.NOT_BY_UUID(), example=instead)
    if annotations.get(_SHARING) == "mig":
        raise RequestError(
            "mig", field=_SHARING, problem=says.NAMES_PROFILE(),
            example="dovetail.dev/gpu: 2x1g.10gb",
        )  # fmt: skip
    if request.mig or request.vendor not in {None, MANAGED_VENDOR}:
        return request
    return replace(
        request,
        models=_models(annotations.get(_USE_TYPE, ""), key=_USE_TYPE),
        excluded_models=_models(annotations.get(_NO_TYPE, ""), key=_NO_TYPE),
    )


def policy_in(annotations: Mapping[str, str]) -> Policy | None:
    """The placement policy in HAMi's annotations; None without one. Raises `RequestError`."""
    for key in _POLICIES:
        if text := annotations.get(key):
            if text not in _POLICY_OF:
                raise RequestError(
                    text, field=key, problem=says.NO_SUCH_WORD(kind="policy"), example=" or ".join(_POLICY_OF)
                )
            return _POLICY_OF[text]
    return None


def fraction_in(annotations: Mapping[str, str]) -> Asked | None:
    """What KAI's annotations ask for; None without. Raises `RequestError`."""
    said = {key: text for key in (_FRACTION, _MEMORY, _DEVICES) if (text := annotations.get(key))}
    if not said.keys() & {_FRACTION, _MEMORY}:
        return None
    words = ", ".join(f"{key}: {text}" for key, text in said.items())
    if len(said.keys() & {_FRACTION, _MEMORY}) > 1:
        raise RequestError(words, field="annotations", problem=says.BOTH_SAY_SHARE(), example=f"{_FRACTION}: 0.5")
    return Asked(words=words, taint="nvidia.com/gpu", request=_fraction(said), in_turns=_MEMORY in said)


def fraction_of(pod: Pod) -> tuple[str, Asked] | None:
    """The container that KAI's annotations mean, and what they ask for it; None without. Raises `RequestError`."""
    asked = fraction_in(pod.metadata.annotations)
    return None if asked is None else (_container(pod).name, asked)


def _fraction(said: Mapping[str, str]) -> GPURequest:
    count = read_whole(said.get(_DEVICES, "1"), otherwise=0)
    if not 1 <= count <= MAX_COUNT:
        raise RequestError(said[_DEVICES], field=_DEVICES, problem=says.FROM_TO(low=1, high=MAX_COUNT), example="2")
    if (text := said.get(_MEMORY)) is not None:
        mib = read_whole(text, otherwise=0)
        if not 1 <= mib <= MAX_MEMORY_MIB:
            raise RequestError(text, field=_MEMORY, problem=says.MIB_ABOVE_ZERO(), example="2000")
        return GPURequest(count=count, memory_mib=mib, vendor=MANAGED_VENDOR)
    try:
        request = parse(said[_FRACTION])
    except RequestError as error:
        raise RequestError(said[_FRACTION], field=_FRACTION, problem=error.said, example="0.5") from error
    if replace(request, share_milli=1) != GPURequest(share_milli=1):
        raise RequestError(said[_FRACTION], field=_FRACTION, problem=says.FROM_TO(low="0.001", high=1), example="0.5")
    return replace(request, count=count, vendor=MANAGED_VENDOR)


def _container(pod: Pod) -> Container:
    """The container that gets the part: the one that the annotation names, else the first. Raises `RequestError`."""
    first, *_ = pod.spec.containers
    name = pod.metadata.annotations.get(_CONTAINER, first.name)
    found = next((each for each in every_container(pod.spec) if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in every_container(pod.spec))
        raise RequestError(name, field=_CONTAINER, problem=says.NO_SUCH_CONTAINER(name=name), example=known)
    if found in pod.spec.init_containers and found.restart_policy != "Always":
        raise RequestError(
            name, field=_CONTAINER,
            problem=says.NONE_ASKS(),
            example=f"dovetail.dev/gpu.{first.name}: '0.5' and dovetail.dev/gpu.{name}: '0.5'",
        )  # fmt: skip
    return found


def _models(text: str, *, key: str) -> tuple[str, ...]:
    """The models of the table that contain one of HAMi's words, or the word itself where none does."""
    # A word alone may name all families of the table.
    check_length(text, field=key, example="A100,V100")
    models: list[str] = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        meant = normalise(word)
        known = [family for family in known_families() if meant.family in family] if meant.memory_gb is None else []
        models += known or [word]
    found = tuple(dict.fromkeys(models))
    try:
        parse(str(GPURequest(models=found)))
    except RequestError as error:
        raise RequestError(text, field=key, problem=error.said, example="A100,V100") from error
    return found
