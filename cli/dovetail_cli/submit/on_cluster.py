"""A submission on a cluster: the profile's values, output files, and the directory."""

import getpass
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import terminal
from dovetail_cli.submit.attachments import Sent
from dovetail_cli.submit.local import Local
from dovetail_cli.submit.manifest import Submission
from dovetail_cli.submit.output_files import OutputFiles, with_files
from dovetail_cli.submit.profiles.apply import with_defaults
from dovetail_cli.submit.profiles.effective import effective
from dovetail_cli.ui.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """gbatch's options about a cluster.

    profile      the name of the user's profile; None for the current one
    interactive  whether the job's container has a terminal
    upload       whether the directory goes along; None for what the profile says
    kubeconfig   the kubeconfig for kubectl
    context      its context
    """

    profile: str | None = None
    interactive: bool = False
    upload: bool | None = None
    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A submission with all its values, and the directory that goes along."""

    submission: Submission
    directory: Path | None = None


async def prepare(submission: Submission, *, asked: Asked, files: Local, cluster: Cluster) -> Prepared:
    """The submission over the profile's values.

    Raises `UsageError` for values that are not allowed.

    The directory goes along unless an option or the profile says no, or `--workdir` names another one in the container.
    On simulated nodes, where nothing runs, it stays.
    """
    simulated = cluster.client.connection.simulated
    if asked.interactive:
        _check_interactive(submission, files=files, simulated=simulated)
    _warn(files, simulated=simulated)
    profile = (await effective(cluster, name=asked.profile)).profile
    wanted = with_defaults(submission, profile=profile, simulated=simulated)
    if simulated:
        return Prepared(submission=wanted)
    upload = profile.upload if asked.upload is None else asked.upload
    goes_along = upload is not False and submission.workdir is None
    output = OutputFiles(
        output=files.output,
        error=files.error,
        name=submission.name,
        user=getpass.getuser(),
        workers=submission.workers,
    )
    wanted = replace(wanted, command=with_files(wanted.command, files=output))
    if not goes_along:
        return Prepared(submission=wanted)
    from dovetail_cli.submit.workdir import send

    return Prepared(submission=wanted, directory=send.typed_in())


async def completed(job: GPUJob, *, prepared: Prepared, asked: Asked, cluster: Cluster, dry_run: bool) -> Sent:
    """The job in a copy of the directory, if one goes along, and with a terminal if it has one."""
    if asked.interactive:
        job = terminal.with_terminal(job, terminal=os.environ.get("TERM", "xterm") if on_terminal() else None)
    if prepared.directory is None:
        return Sent(job=job)
    from dovetail_cli.submit.workdir import send

    return await send.send(
        cluster,
        job=job,
        root=prepared.directory,
        workdir=prepared.submission.workdir,
        dry_run=dry_run,
        kubeconfig=asked.kubeconfig,
        context=asked.context,
    )


def _check_interactive(submission: Submission, *, files: Local, simulated: bool) -> None:
    if simulated:
        raise UsageError("--interactive needs a container that runs: on simulated nodes, nothing does")
    terminal.check(submission, files=files)


def on_terminal() -> bool:
    """Whether a person sits at this terminal: what the job's container gets too."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _warn(files: Local, *, simulated: bool) -> None:
    given = {"--export": files.export, **({"--output": files.output, "--error": files.error} if simulated else {})}
    if options := [option for option, value in given.items() if value is not None]:
        verb = "is" if len(options) == 1 else "are"
        why = "on simulated nodes, where nothing runs" if simulated else "in a cluster: --env sets a variable"
        print(f"dovetail: {', '.join(options)} {verb} ignored {why}", file=sys.stderr)
