"""gbatch's work: the command out of words, files and standard input; submitting; the one line that it prints."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.api.gpujob import GPUJob
from dovetail.kube.errors import Forbidden
from dovetail_cli import creating, depending, manifest, output, scripts
from dovetail_cli.cluster import Cluster, work
from dovetail_cli.errors import UsageError


def submit(
    submission: manifest.Submission,
    *,
    after: depending.Wanted | None,
    dry_run: bool,
    form: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Submit the job, to start `after` others, and print its number.

    With `dry_run` let the API server check it, and say where and when it would start.
    """

    async def go(cluster: Cluster) -> str:
        wanted = submission
        if after is not None:
            dependencies = await depending.resolve(after, cluster=cluster)
            wanted = replace(submission, dependencies=dependencies, any_dependency=after.any_one)
        job = manifest.build(wanted, namespace=cluster.namespace)
        created = await creating.create(cluster, job, dry_run=dry_run)
        if dry_run:
            return await _checked(job, created=created, cluster=cluster, form=form)
        number = await creating.wait_for_number(cluster, created)
        return creating.submitted(number, job=created, form=form)

    print(work(go, kubeconfig=kubeconfig, context=context, namespace=namespace))


def script_of(words: Sequence[str]) -> scripts.Script | None:
    """The script that gbatch's words name; None for a command. Raises `UsageError` for one that is not there."""
    first = words[0]
    if first == "-":
        return scripts.read_script(sys.stdin.buffer.read(), name="stdin")
    if Path(first).is_file():
        return scripts.read_script(Path(first).read_bytes(), name=first)
    if first.startswith(("./", "../")) or first.endswith((".sh", ".slurm", ".sbatch")):
        raise UsageError(f"{first}: no such script here")
    return None


def command_of(words: Sequence[str], *, script: scripts.Script | None) -> list[str]:
    """The container's command for gbatch's words. Raises `UsageError` for a script that nothing here runs."""
    return scripts.plain_command(words) if script is None else scripts.script_command(script, words[1:])


async def _checked(job: GPUJob, *, created: GPUJob, cluster: Cluster, form: str) -> str:
    wanted = creating.as_manifest(job)
    match form:
        case "json":
            return output.as_json(wanted)
        case "yaml":
            return output.as_yaml(wanted)
        case _:
            would = f"Job {wanted['metadata']['name']} would be submitted (-o yaml shows it)."
            return f"{would}\n{await _foretold(created, cluster=cluster)}"


async def _foretold(job: GPUJob, *, cluster: Cluster) -> str:
    from dovetail_cli import foretelling, patience, picture, times

    try:
        with patience.patiently() as say:
            seen = await picture.take(cluster, say=say)
    except Forbidden:
        return "Where and when it would start is not said: that takes the right to list the cluster's nodes and pods."
    return foretelling.foretell(job, picture=seen, now=times.utc_now())
