"""Slurm's variables of a job: those of its options, and those that follow from the job."""

from typing import Any

from dovetail.api.gpujob import ArraySpec, GPUJob, spec_of
from dovetail.gpu.request import parse
from dovetail_cli.submit import manifest
from dovetail_cli.submit.manifest import with_slurm_variables

NUMBER = "$(DOVETAIL_JOB_ID)"


def job(**options: Any) -> GPUJob:
    options = {"name": "Train_1", "command": ["true"], "request": None, "image": "i", **options}
    return manifest.build(manifest.Submission(**options), namespace="default")


def variables(job: GPUJob) -> dict[str, str]:
    return {each["name"]: each["value"] for each in spec_of(job.spec.template)["containers"][0].get("env") or ()}


def test_a_job_of_one_worker_is_what_slurm_calls_a_batch_script() -> None:
    env = {"SLURM_JOB_ID": NUMBER, "SLURM_NTASKS": "4", "LR": "0.1"}
    assert variables(with_slurm_variables(job(env=env, request=parse("2(A100)"), workdir="/home/ada/run"))) == {
        **env,
        "SLURM_JOB_NAME": "Train_1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_SUBMIT_DIR": "/home/ada/run",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
    }


def test_a_variable_says_nothing_that_differs_between_tasks_or_workers() -> None:
    found = variables(
        with_slurm_variables(job(env={"SLURM_JOB_ID": NUMBER}, workers=2, array=ArraySpec(indexes="0-3")))
    )
    assert found == {
        "SLURM_JOB_ID": NUMBER,
        "SLURM_JOB_NAME": "Train_1",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2",
        "SLURM_SUBMIT_DIR": ".",
    }


def test_a_job_that_is_not_written_for_slurm_is_unchanged() -> None:
    plain = job(env={"LR": "0.1"})
    assert with_slurm_variables(plain) is plain
