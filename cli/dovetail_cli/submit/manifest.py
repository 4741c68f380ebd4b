"""A GPUJob out of gbatch's options. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args

from dovetail import names
from dovetail.api.gpujob import (
    ArraySpec,
    Dependency,
    GPUJob,
    GPUJobSpec,
    Mode,
    NotifySpec,
    Policy,
    ResourceRequest,
    SweepSpec,
    TemplateMetadata,
    template_of,
)
from dovetail.api.meta import ObjectMeta
from dovetail.formats import quantities
from dovetail.gpu.request import GPURequest, RequestError, parse
from dovetail.jobs.display_name import object_name
from dovetail_cli.ui.errors import UsageError

CONTAINER: Final = "main"
_POLICIES: Final = {policy.lower(): policy for policy in get_args(Policy)}
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CONDA_ENV: Final = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9._/-]*")
_MOST_WORKERS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The checked options of gbatch.

    name              the job's name
    command           the container's command
    request           the GPUs of each worker; None for a job without GPUs
    shared            whether the job shares devices
    priority          the job's priority
    limit_seconds     the time limit
    max_retries       how often a failed run is repeated
    workers           the number of pods
    image             the container's image
    workdir           the container's working directory
    policy            the placement policy; None for the namespace's
    pool              the pool of nodes
    project           the project that the job counts for
    begin_time        the earliest start, as RFC 3339
    dependencies      the jobs that this job waits for
    any_dependency    whether one of them suffices
    wait_on_failure   whether the job keeps waiting when a dependency can no longer be met
    notify            recipients and events of notifications
    array             the tasks of an array
    sweep             the parameters of a sweep
    annotations       further annotations of the job
    host_resources    CPU and memory of each worker
    """

    name: str
    command: Sequence[str]
    request: GPURequest | None
    shared: bool = False
    priority: int = 10
    limit_seconds: int | None = None
    max_retries: int = 0
    workers: int = 1
    image: str
    workdir: str | None = None
    policy: Policy | None = None
    pool: str | None = None
    project: str | None = None
    begin_time: str | None = None
    dependencies: Sequence[Dependency] = ()
    any_dependency: bool = False
    wait_on_failure: bool = False
    notify: NotifySpec | None = None
    array: ArraySpec | None = None
    sweep: SweepSpec | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    host_resources: Mapping[str, str] = field(default_factory=dict)


def request_of(gpus: str | None, *, gpu_memory: str | None, shared: bool) -> GPURequest | None:
    """The request of `--gpus`, `--gpu-memory` and `--shared`; None for a job without GPUs.

    Raises `UsageError`.
    """
    if gpus is None or gpus.strip() == "0":
        if gpu_memory is not None or shared:
            raise UsageError("--gpu-memory and --shared need --gpus: how many GPUs, such as --gpus 1")
        return None
    try:
        request = parse(gpus)
    except RequestError as error:
        raise UsageError(f"--gpus{str(error).removeprefix('gpu')}") from error
    if gpu_memory is not None:
        if request.memory_mib is not None:
            raise UsageError(f'--gpu-memory "{gpu_memory}": --gpus "{gpus}" says the memory already')
        request = replace(request, memory_mib=memory_mib(gpu_memory))
    if request.whole and request.memory_mib is not None and not shared and gpu_memory is not None:
        raise UsageError(
            f'--gpu-memory "{gpu_memory}": whole GPUs come with all their memory; '
            "add --shared, or ask for a share such as --gpus 0.5"
        )
    if shared and request.memory_mib is None:
        raise UsageError(
            "--shared needs --gpu-memory: how much of each GPU's memory, such as 8G, the others can then use the rest"
        )
    return request


def host_resources(*, cpus: str | None, memory: str | None) -> dict[str, str]:
    """Each worker's request for CPU and memory of its node. Raises `UsageError`."""
    found = {}
    if cpus is not None:
        try:
            amount = quantities.milli(cpus)
        except quantities.QuantityError:
            amount = 0
        if amount < 1:
            raise UsageError(f'--cpus "{cpus}": write a number of CPUs, such as 4, 0.5 or 500m')
        found["cpu"] = cpus
    if memory is not None:
        found["memory"] = f"{memory_mib(memory, option='--memory')}Mi"
    return found


def in_conda(command: Sequence[str], *, env: str | None) -> list[str]:
    """The command in a conda environment of the image.

    Raises `UsageError` for an invalid name.
    """
    if env is None:
        return list(command)
    if not _CONDA_ENV.fullmatch(env):
        raise UsageError(f'--conda-env "{env}": write the name or the absolute path of an environment')
    return ["conda", "run", "--no-capture-output", "-p" if env.startswith("/") else "-n", env, *command]


def memory_mib(text: str, *, option: str = "--gpu-memory") -> int:
    """Memory such as `8G` or `512M`, in MiB; G and M are binary, as in drivers.

    Raises `UsageError`.
    """
    spelt = text.strip().upper().removesuffix("B").removesuffix("I")
    try:
        mebibytes = quantities.mebibytes(f"{spelt}i") if spelt[-1:] in {"M", "G"} else 0
    except quantities.QuantityError:
        mebibytes = 0
    if mebibytes < 1:
        raise UsageError(f'{option} "{text}": write a number with M or G, such as 8G or 512M')
    return mebibytes


def check_priority(priority: int) -> int:
    """A priority from 0 to 255. Raises `UsageError`."""
    if not 0 <= priority <= 255:
        raise UsageError(f"--priority {priority}: allowed are 0 to 255, higher goes first")
    return priority


def check_image(image: str) -> str:
    """The name of an image. Raises `UsageError` for one that no registry can have."""
    if not _IMAGE.fullmatch(image):
        raise UsageError(f'--image "{image}": write an image without blanks, such as busybox:1.37')
    return image


def check_pool(pool: str) -> str:
    """The name of a pool. Raises `UsageError` for one that no label can have."""
    if not _LABEL.fullmatch(pool):
        raise UsageError(f'--pool "{pool}": write the value of a label such as a100: a-z, 0-9 and -, at most 63')
    return pool


def check_workers(workers: int) -> int:
    """A number of workers from 1 to 1024. Raises `UsageError`."""
    if not 1 <= workers <= _MOST_WORKERS:
        raise UsageError(f"--nodes {workers}: allowed are 1 to {_MOST_WORKERS} workers")
    return workers


def check_retries(retries: int) -> int:
    """A number of retries from 0 to 1000. Raises `UsageError`."""
    if not 0 <= retries <= 1000:
        raise UsageError(f"--max-retries {retries}: allowed are 0 to 1000")
    return retries


def parse_policy(text: str | None) -> Policy | None:
    """A policy in any case. Raises `UsageError`."""
    if text is None:
        return None
    policy = _POLICIES.get(text.lower())
    if policy is None:
        raise UsageError(f'--policy "{text}": allowed are {", ".join(_POLICIES.values())}')
    return cast("Policy", policy)


def build(submission: Submission, *, namespace: str) -> GPUJob:
    """The GPUJob to create."""
    request = submission.request
    mode: Mode | None = "TimeShared" if submission.shared else None
    name = object_name(submission.name)
    called = {} if name == submission.name else {names.DISPLAY_NAME: submission.name}
    labels = {names.LABEL_PROJECT: submission.project} if submission.project else {}
    return GPUJob(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=called),
        spec=GPUJobSpec(
            gpu=None if request is None else str(request),
            resources=ResourceRequest(device="cpu") if request is None else None,
            mode=mode,
            policy=submission.policy,
            pool=submission.pool,
            priority=submission.priority,
            workers=submission.workers,
            begin_time=submission.begin_time,
            dependencies=list(submission.dependencies),
            dependency_policy="Any" if submission.any_dependency else "All",
            on_dependency_failure="Wait" if submission.wait_on_failure else "Cancel",
            active_deadline_seconds=submission.limit_seconds,
            backoff_limit=submission.max_retries,
            array=submission.array,
            sweep=submission.sweep,
            notify=submission.notify,
            template=template_of(
                {"restartPolicy": "Never", "containers": [_container(submission)]},
                metadata=TemplateMetadata(annotations=dict(submission.annotations)),
            ),
        ),
    )


def _container(submission: Submission) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": submission.image,
        "command": list(submission.command),
    }
    if submission.workdir is not None:
        container["workingDir"] = submission.workdir
    if submission.host_resources:
        container["resources"] = {"requests": dict(submission.host_resources)}
    return container
