"""A GPUJob out of gbatch's options. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args

import msgspec

from dovetail import names
from dovetail.api.gpujob import (
    MAX_SECONDS,
    ArraySpec,
    Dependency,
    GPUJob,
    GPUJobSpec,
    MemoryRequest,
    Mode,
    NotifySpec,
    OnNoGPU,
    ResourceRequest,
    SweepSpec,
    TemplateMetadata,
    TopologySpec,
    spec_of,
    template_of,
)
from dovetail.api.meta import ObjectMeta
from dovetail.formats import quantities
from dovetail.gpu import memory_strategy
from dovetail.gpu.request import MAX_NOMINAL_GB, GPURequest, RequestError, parse
from dovetail.jobs.display_name import display_name, object_name
from dovetail_cli.submit.options.of_spec import one_of
from dovetail_cli.submit.pod_options import Volume, container_fields, pod_fields
from dovetail_cli.ui import times
from dovetail_cli.ui.errors import UsageError

CONTAINER: Final = "main"
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CONDA_ENV: Final = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9._/-]*")
_MOST_WORKERS: Final = 1024
_MOST_CONCURRENT: Final = 100_000
_GIB: Final = 1024
_SLURM_JOB: Final = "SLURM_JOB_ID"
# Of several workers, each runs the script, and a variable of the job cannot say which one it is.
_OF_ONE_SLURM_NODE: Final = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """When the job runs on the CPU instead of its GPUs.

    on_no_gpu      what happens where no GPU could ever serve it; None for what its namespace has
    after_seconds  after how many seconds of busy GPUs it runs there too; None for never
    """

    on_no_gpu: OnNoGPU | None = None
    after_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The checked options of gbatch.

    name              the job's name
    command           the container's command
    request           the GPUs of each worker; None for a job without GPUs
    mode              how the job shares devices; None where it follows from the request
    priority          the job's priority
    limit_seconds     the time limit
    max_retries       how often a failed run is repeated
    workers           the number of pods
    min_workers       the fewest pods that the job may start with; None for all of them
    topology          the levels of the network that hold its pods together; None for any nodes
    image             the container's image; empty until a profile or the kind of cluster says which
    workdir           the container's working directory
    env               variables of the container
    volumes           claims that are mounted in the container
    node_selector     labels of the nodes that the job may run on
    memory_strategy   how much of a shared device's memory is promised; None for the configured one
    fallback          when the job runs on the CPU instead of its GPUs
    group             the group of jobs that it counts for
    max_concurrent    the most jobs of the group that run at a time
    fields            what the options that each say one field of the spec say, by the attributes of `GPUJobSpec`
    project           the project that the job counts for
    begin_time        the earliest start, as RFC 3339
    dependencies      the jobs that this job waits for
    any_dependency    whether one of them suffices
    wait_on_failure   whether the job keeps waiting when a dependency can no longer be met
    notify            recipients and events of notifications
    array             the tasks of an array
    sweep             the parameters of a sweep
    annotations       further annotations of the job
    host_resources    CPU and memory that each worker requests
    host_limits       CPU and memory that each worker may not exceed
    """

    name: str
    command: Sequence[str]
    request: GPURequest | None
    mode: Mode | None = None
    priority: int = 10
    limit_seconds: int | None = None
    max_retries: int = 0
    workers: int = 1
    min_workers: int | None = None
    topology: TopologySpec | None = None
    image: str = ""
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[Volume] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    memory_strategy: str | None = None
    fallback: Fallback = Fallback()
    group: str | None = None
    max_concurrent: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
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
    host_limits: Mapping[str, str] = field(default_factory=dict)


def mode_of(text: str | None, *, shared: bool) -> Mode | None:
    """The mode of `--mode` and `--shared`, which is TimeShared. Raises `UsageError`."""
    mode = None if text is None else cast("Mode", one_of(text, option="--mode", allowed=get_args(Mode)))
    if shared and mode not in {None, "TimeShared"}:
        raise UsageError(f'--mode "{text}": --shared means TimeShared: give one of them')
    return "TimeShared" if shared else mode


def request_of(
    gpus: str | None, *, gpu_memory: str | None, shared: bool = False, mode: Mode | None = None
) -> GPURequest | None:
    """The request of `--gpus`, `--gpu-memory` and `--shared`; None for a job without GPUs.

    Of whole GPUs that no other job shares, `--gpu-memory` is the smallest nominal size. Raises `UsageError`.
    """
    if gpus is None or gpus.strip() == "0":
        if gpu_memory is not None or shared:
            raise UsageError("--gpu-memory and --shared need --gpus: how many GPUs, such as --gpus 1")
        return None
    try:
        request = parse(gpus)
    except RequestError as error:
        raise UsageError(f"--gpus{str(error).removeprefix('gpu')}") from error
    if request.mig and (gpu_memory is not None or shared):
        raise UsageError(f'--gpus "{gpus}": a MIG instance is taken whole, without --gpu-memory and --shared')
    if gpu_memory is not None:
        whole = request.whole and not shared and mode != "TimeShared"
        request = _with_memory(request, gpus=gpus, gpu_memory=gpu_memory, whole=whole)
    if shared and not request.names_memory:
        raise UsageError(
            "--shared needs --gpu-memory: how much of each GPU's memory, such as 8G, the others can then use the rest"
        )
    return request


def _with_memory(request: GPURequest, *, gpus: str, gpu_memory: str, whole: bool) -> GPURequest:
    mebibytes = memory_mib(gpu_memory)
    if request.names_memory or (whole and request.min_nominal_gb is not None):
        raise UsageError(f'--gpu-memory "{gpu_memory}": --gpus "{gpus}" says the memory already')
    if not whole:
        return replace(request, memory_mib=mebibytes)
    if mebibytes % _GIB or mebibytes > MAX_NOMINAL_GB * _GIB:
        raise UsageError(
            f'--gpu-memory "{gpu_memory}": whole GPUs are chosen by their size in GB, such as --gpu-memory 32G; '
            "for a part of one add --shared, or ask for a share such as --gpus 0.5"
        )
    return replace(request, min_nominal_gb=mebibytes // _GIB)


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
    """Memory such as `8G`, `512M` or `1T`, in MiB; the units are binary, as in drivers.

    Raises `UsageError`.
    """
    spelt = text.strip().upper().removesuffix("B").removesuffix("I")
    try:
        mebibytes = quantities.mebibytes(f"{spelt}i") if spelt[-1:] in {"M", "G", "T"} else 0
    except quantities.QuantityError:
        mebibytes = 0
    if mebibytes < 1:
        raise UsageError(f'{option} "{text}": write a number with M, G or T, such as 8G or 512M')
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


def check_min_workers(least: int | None, *, workers: int) -> int | None:
    """The fewest workers that the job may start with. Raises `UsageError`."""
    if least is not None and not 1 <= least <= workers:
        raise UsageError(
            f"--min-workers {least}: allowed are 1 to the number of workers, which is {workers}, "
            "such as --nodes 4 --min-workers 2"
        )
    return least


def check_group(group: str | None) -> str | None:
    """The name of a group of jobs. Raises `UsageError`."""
    if group is not None and not LABEL.fullmatch(group):
        raise UsageError(f'--group "{group}": write up to 63 of a-z, 0-9 and -, such as --group sweep-7')
    return group


def check_max_concurrent(limit: int | None) -> int | None:
    """The most jobs of a group that run at a time. Raises `UsageError`."""
    if limit is not None and not 1 <= limit <= _MOST_CONCURRENT:
        raise UsageError(f"--max-concurrent {limit}: allowed are 1 to {_MOST_CONCURRENT} jobs at a time")
    return limit


def check_about_gpus(given: Mapping[str, object], *, request: GPURequest | None) -> None:
    """Raise `UsageError` for options about GPUs of a job without GPUs.

    `given` has the options' values by name, None where one is not given.
    """
    for option, value in given.items():
        if value is not None and request is None:
            raise UsageError(f"{option} needs --gpus: how many GPUs, such as --gpus 1")


def parse_memory_strategy(text: str | None) -> str | None:
    """A memory strategy, by its name in any case or as a fraction. Raises `UsageError`."""
    if text is None:
        return None
    found = {name.lower(): name for name in memory_strategy.NAMES}.get(text.strip().lower(), text.strip())
    try:
        memory_strategy.fraction_of(found)
    except RequestError as error:
        raise UsageError(f'--memory-strategy "{text}": allowed are {memory_strategy.ALLOWED}') from error
    return found


def fallback_of(wanted: bool | None, *, after: str | None) -> Fallback:
    """When the job runs on the CPU. `after` is a span such as 30m. Raises `UsageError`."""
    if after is None:
        return Fallback(on_no_gpu=None if wanted is None else "RunOnCPU" if wanted else "Wait")
    if wanted is False:
        raise UsageError("--no-cpu-fallback: --cpu-fallback-after says when the job runs on the CPU; leave one out")
    seconds = times.span_seconds(after, option="--cpu-fallback-after")
    if seconds > MAX_SECONDS:
        raise UsageError(f'--cpu-fallback-after "{after}": at most {MAX_SECONDS} seconds, such as 30m')
    return Fallback(on_no_gpu="RunOnCPU", after_seconds=int(seconds))


def build(submission: Submission, *, namespace: str) -> GPUJob:
    """The GPUJob to create."""
    request = submission.request
    name = object_name(submission.name)
    called = {} if name == submission.name else {names.DISPLAY_NAME: submission.name}
    labels = {names.LABEL_PROJECT: submission.project} if submission.project else {}
    spec = GPUJobSpec(
        gpu=None if request is None else str(request),
        resources=ResourceRequest(device="cpu") if request is None else None,
        mode=submission.mode,
        priority=submission.priority,
        workers=submission.workers,
        min_workers=submission.min_workers,
        topology=submission.topology,
        group=submission.group,
        max_concurrent=submission.max_concurrent,
        on_no_gpu=submission.fallback.on_no_gpu,
        on_no_gpu_after_seconds=submission.fallback.after_seconds,
        begin_time=submission.begin_time,
        dependencies=list(submission.dependencies),
        dependency_policy="Any" if submission.any_dependency else "All",
        on_dependency_failure="Wait" if submission.wait_on_failure else "Cancel",
        active_deadline_seconds=submission.limit_seconds,
        backoff_limit=submission.max_retries,
        array=submission.array,
        sweep=submission.sweep,
        **submission.fields,
        notify=submission.notify,
        template=template_of(
            {
                "restartPolicy": "Never",
                "containers": [_container(submission)],
                **pod_fields(mounted=submission.volumes, selector=submission.node_selector),
            },
            metadata=TemplateMetadata(annotations=dict(submission.annotations)),
        ),
    )
    if submission.memory_strategy is not None:
        spec = msgspec.structs.replace(spec, memory=MemoryRequest(strategy=submission.memory_strategy))
    return GPUJob(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=called), spec=spec)


def with_spec(job: GPUJob, *, spec: Mapping[str, Any]) -> GPUJob:
    """The job with another pod spec."""
    template = template_of(spec, metadata=job.spec.template.metadata)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))


def with_slurm_variables(job: GPUJob) -> GPUJob:
    """The job with those variables that `#SBATCH` lines and sbatch's options alone do not say.

    Any other job is unchanged: libraries take these variables as a sign of Slurm.
    """
    spec = spec_of(job.spec.template)
    first, *others = spec["containers"]
    env = {each["name"]: each for each in first.get("env") or ()}
    if _SLURM_JOB not in env:
        return job
    # A directory that goes along to a cluster has its path later; the script starts in it.
    found = _slurm_variables(job) | {"SLURM_SUBMIT_DIR": first.get("workingDir") or "."}
    missing = [{"name": name, "value": value} for name, value in found.items() if name not in env]
    return with_spec(job, spec={**spec, "containers": [{**first, "env": [*env.values(), *missing]}, *others]})


def _slurm_variables(job: GPUJob) -> dict[str, str]:
    workers = str(job.spec.workers)
    found = {"SLURM_JOB_NAME": display_name(job.metadata), "SLURM_JOB_NUM_NODES": workers, "SLURM_NNODES": workers}
    if job.spec.gpu is not None and (request := parse(job.spec.gpu)).whole:
        found["SLURM_GPUS_ON_NODE"] = str(request.count)
    return found | (_OF_ONE_SLURM_NODE if job.spec.workers == 1 else {})


def _container(submission: Submission) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": submission.image,
        "command": list(submission.command),
        **container_fields(env=submission.env, mounted=submission.volumes),
    }
    if submission.workdir is not None:
        container["workingDir"] = submission.workdir
    amounts = {"requests": dict(submission.host_resources), "limits": dict(submission.host_limits)}
    if given := {name: each for name, each in amounts.items() if each}:
        container["resources"] = given
    return container
