"""How a gang's workers find each other: a headless Service and framework settings. Pure.

Each pod's host name consists of the Job's name and the worker's index. The Service resolves these names before the pods
are ready. Names end with the Service's name: every pod's resolver adds its own namespace.
"""

import json
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import Distributed, GPUJob
from dovetail.jobs.batch_job import owner_reference

Manifest = dict[str, Any]

HOSTFILE_FOLDER: Final = "/etc/mpi"
HOSTFILE: Final = f"{HOSTFILE_FOLDER}/hostfile"
_VOLUME: Final = "dovetail-mpi"
# Up to this many workers TF_CONFIG is set without a framework: it names all workers, in the pod of each.
_TF_CONFIG_UNASKED: Final = 128


def meets(job: GPUJob) -> bool:
    """Whether the job's workers have to find each other."""
    # An elastic gang that started with one worker learns from its settings that it is alone.
    several = job.spec.workers > 1 or job.spec.min_workers is not None
    return several and (job.spec.distributed is None or job.spec.distributed.framework != "None")


def service_of(job: GPUJob) -> Manifest:
    """The headless Service that resolves the workers' names. It has the GPUJob's name."""
    port = _distributed(job).port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": {names.LABEL_JOB: job.metadata.name},
            "ownerReferences": [msgspec.to_builtins(owner_reference(job))],
        },
        "spec": {
            "clusterIP": "None",
            # Workers look for each other before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: job.metadata.name},
            "ports": [{"name": "rendezvous", "port": port}],
        },
    }


def hosts(job: GPUJob) -> list[str]:
    """The workers' host names, by index."""
    name = job.metadata.name
    return [f"{name}-{index}.{name}" for index in range(job.spec.workers)]


def environment(job: GPUJob, *, gpus: int) -> list[Manifest]:
    """The variables of a worker with `gpus` GPUs; empty if the workers need not find each other."""
    if not meets(job):
        return []
    distributed, first = _distributed(job), hosts(job)[0]
    # The Job controller writes the index into the pod's annotations.
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.COMPLETION_INDEX}']"}
    index = {"valueFrom": {"fieldRef": field}}
    port, workers = str(distributed.port), str(job.spec.workers)
    variables: list[Manifest] = [
        {"name": "MASTER_ADDR", "value": first},
        {"name": "MASTER_PORT", "value": port},
        {"name": "WORLD_SIZE", "value": workers},
        {"name": "RANK", **index},
        {"name": "LOCAL_WORLD_SIZE", "value": "1"},
        {"name": "LOCAL_RANK", "value": "0"},
    ]
    if distributed.framework == "PyTorch":
        variables += _torchrun(first, port=port, workers=workers, index=index, processes=max(1, gpus))
    if distributed.framework == "TensorFlow" or (
        job.spec.distributed is None and job.spec.workers <= _TF_CONFIG_UNASKED
    ):
        variables.append({"name": "TF_CONFIG", "value": _tf_config(job, port=distributed.port)})
    if distributed.framework == "MPI":
        variables += [
            {"name": name, "value": HOSTFILE}
            for name in ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "I_MPI_HYDRA_HOST_FILE")
        ]
        variables.append({"name": "HYDRA_HOST_FILE", "value": HOSTFILE})
        # Open MPI would cut a host's name at its first dot, and no resolver knows the rest.
        variables += [
            {"name": name, "value": "true"}
            for name in ("OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_prte_keep_fqdn_hostnames")
        ]
    return variables


def pod_annotations(job: GPUJob, *, gpus: int) -> dict[str, str]:
    """Additional pod annotations: for MPI the hosts, and the number of processes on each."""
    if not _is_mpi(job):
        return {}
    return {names.HOSTFILE: "".join(f"{host} slots={max(1, gpus)}\n" for host in hosts(job))}


def success_policy(job: GPUJob) -> Manifest | None:
    """The rule by which a job succeeds before all workers have; None without one.

    The other workers of an MPI job wait for the first one forever.
    """
    return {"rules": [{"succeededIndexes": "0"}]} if _is_mpi(job) else None


def joined(spec: Manifest, *, job: GPUJob, gpus: int) -> Manifest:
    """Add the Service's name, the first container's variables and MPI's hostfile to a pod."""
    if not meets(job):
        return spec
    kept = {key: value for key, value in spec.items() if key != "hostname"}
    first, *others = kept["containers"]
    ours = environment(job, gpus=gpus)
    said = {entry["name"] for entry in ours}
    theirs = [entry for entry in first.get("env") or () if entry.get("name") not in said]
    first = {**first, "env": [*ours, *theirs]}
    whole = {**kept, "subdomain": job.metadata.name, "containers": [first, *others]}
    return _with_hostfile(whole) if _is_mpi(job) else whole


def _with_hostfile(spec: Manifest) -> Manifest:
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.HOSTFILE}']"}
    volume = {"name": _VOLUME, "downwardAPI": {"items": [{"path": "hostfile", "fieldRef": field}]}}
    first, *others = spec["containers"]
    mount = {"name": _VOLUME, "mountPath": HOSTFILE_FOLDER, "readOnly": True}
    first = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
    return {**spec, "volumes": [*(spec.get("volumes") or ()), volume], "containers": [first, *others]}


def _torchrun(first: str, *, port: str, workers: str, index: Manifest, processes: int) -> list[Manifest]:
    """The variables that torchrun reads instead of its options: one process per GPU."""
    return [
        {"name": "PET_NNODES", "value": workers},
        {"name": "PET_NPROC_PER_NODE", "value": str(processes)},
        {"name": "PET_NODE_RANK", **index},
        {"name": "PET_MASTER_ADDR", "value": first},
        {"name": "PET_MASTER_PORT", "value": port},
    ]


def _tf_config(job: GPUJob, *, port: int) -> str:
    cluster = {"worker": [f"{host}:{port}" for host in hosts(job)]}
    # Kubernetes substitutes the value of RANK, which precedes: a number, so without quotes.
    return f'{{"cluster": {json.dumps(cluster)}, "task": {{"type": "worker", "index": $(RANK)}}}}'


def _distributed(job: GPUJob) -> Distributed:
    return job.spec.distributed or Distributed()


def _is_mpi(job: GPUJob) -> bool:
    return meets(job) and _distributed(job).framework == "MPI"
