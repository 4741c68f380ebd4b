"""Slurm's variables of a job that was written for Slurm. Pure."""

from typing import Final

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.gpu.request import parse
from dovetail.jobs.display_name import display_name
from dovetail_cli.submit.manifest import with_spec

_NUMBER: Final = "SLURM_JOB_ID"
# Of several workers, each runs the script, and a variable of the job cannot say which one it is.
_OF_ONE_WORKER: Final = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}


def completed(job: GPUJob) -> GPUJob:
    """The job with those variables that `#SBATCH` lines and sbatch's options alone do not say.

    Any other job is unchanged: libraries take these variables as a sign of Slurm.
    """
    spec = spec_of(job.spec.template)
    first, *others = spec["containers"]
    env = {each["name"]: each for each in first.get("env") or ()}
    if _NUMBER not in env:
        return job
    # A directory that goes along to a cluster has its path later; the script starts in it.
    found = _of_job(job) | {"SLURM_SUBMIT_DIR": first.get("workingDir") or "."}
    missing = [{"name": name, "value": value} for name, value in found.items() if name not in env]
    return with_spec(job, spec={**spec, "containers": [{**first, "env": [*env.values(), *missing]}, *others]})


def _of_job(job: GPUJob) -> dict[str, str]:
    workers = str(job.spec.workers)
    found = {"SLURM_JOB_NAME": display_name(job.metadata), "SLURM_JOB_NUM_NODES": workers, "SLURM_NNODES": workers}
    if job.spec.gpu is not None and (request := parse(job.spec.gpu)).whole:
        found["SLURM_GPUS_ON_NODE"] = str(request.count)
    return found | (_OF_ONE_WORKER if job.spec.workers == 1 else {})
