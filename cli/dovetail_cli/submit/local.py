"""What a submission leaves for the local node: the environment and the output's place."""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail.jobs.display_name import is_object_name
from dovetail.jobs.local_submission import Folders
from dovetail.names import UNUSED_IMAGE
from dovetail.sdk import local_files
from dovetail_cli.submit.config_file import ConfigFile
from dovetail_cli.submit.manifest import Submission
from dovetail_cli.ui.errors import CommandError, UsageError

_ALL: Final = "ALL"
_NONE: Final = "NONE"
# What a job gets in addition to the variables that --export names.
_MINIMAL: Final = ("HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """gbatch's options for a local node: the environment to export, and files for the output."""

    export: str | None = None
    output: str | None = None
    error: str | None = None


def for_local_node(
    submission: Submission,
    *,
    asked: Local,
    data: Path,
    along: ConfigFile | None = None,
    dry_run: bool = False,
) -> Submission:
    """The submission with what the local node needs, which reads it in `data`.

    Writes the environment's file, and a copy of the file that goes along, unless it is a `dry_run`. Raises
    `CommandError` if they cannot be written.
    """
    submission = _without_nodes(_without_volumes(submission))
    directory = Path.cwd() if submission.workdir is None else Path(submission.workdir)
    if not is_object_name(submission.name):
        kept = {**submission.annotations, names.DISPLAY_NAME: submission.name}
        submission = replace(submission, annotations=kept)
    files = {names.OUTPUT_FILE: asked.output, names.ERROR_FILE: asked.error}
    annotations = {**submission.annotations, **{name: file for name, file in files.items() if file is not None}}
    environment, name, command = exported(asked.export, environ=os.environ), secrets.token_hex(16), submission.command
    if along is not None:
        copy = Folders(data).files / name / along.name
        command = [str(copy) if word == along.path else word for word in command]
        environment = {**(environment or _minimal(os.environ)), names.ENV_CONFIG: str(copy)}
        if not dry_run:
            _leave(along.text.encode(), file=copy)
    if environment is not None:
        if not dry_run:
            _leave(local_files.encoded(environment), file=Folders(data).environments / name)
        annotations[names.ENVIRONMENT] = name
    return replace(
        submission,
        image=submission.image or UNUSED_IMAGE,
        workdir=str(directory.absolute()),
        command=command,
        annotations=annotations,
        # CPUs are shared by weight, but memory that a job takes is missing to the other programs of this machine.
        host_limits={name: amount for name, amount in submission.host_resources.items() if name == "memory"},
    )


def _without_volumes(submission: Submission) -> Submission:
    if not submission.volumes:
        return submission
    given = ", ".join(f"--volume {each}" for each in submission.volumes)
    print(f"dovetail: {given}: jobs on this machine use your files, and no volumes", file=sys.stderr)
    return replace(submission, volumes=())


def _without_nodes(submission: Submission) -> Submission:
    """The submission without a choice of nodes.

    A script for a cluster names a partition, and here is one node.
    """
    given = [f"--pool {submission.fields['pool']}"] if submission.fields.get("pool") else []
    given += [f"--node-selector {label}={value}" for label, value in submission.node_selector.items()]
    if not given:
        return submission
    print(f"dovetail: {', '.join(given)}: jobs run on this machine, whatever its pool and labels", file=sys.stderr)
    fields = {name: value for name, value in submission.fields.items() if name != "pool"}
    return replace(submission, node_selector={}, fields=fields)


def leave_environment(data: Path) -> dict[str, str]:
    """Keep the environment of this process for jobs; return the annotation of their pods.

    Raises `CommandError` if it cannot be written.
    """
    name, environment = secrets.token_hex(16), exported(None, environ=os.environ)
    _leave(local_files.encoded(environment or {}), file=Folders(data).environments / name)
    return {names.ENVIRONMENT: name}


def exported(text: str | None, *, environ: Mapping[str, str]) -> dict[str, str] | None:
    """The variables that `--export` means, as with Slurm; None for NONE. Raises `UsageError`."""
    words = (_ALL if text is None else text).split(",")
    if words == [_NONE]:
        return None
    if _NONE in words or "" in words:
        raise UsageError(f'--export "{text}": write ALL, NONE, or names such as ALL,LR=0.1 or PATH,LR')
    everything = local_files.own(environ)
    found = everything if _ALL in words else _minimal(environ)
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif word != _ALL and word in environ:
            found[name] = environ[word]
    return found


def _minimal(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in _MINIMAL if name in environ}


def _leave(data: bytes, *, file: Path) -> None:
    try:
        local_files.keep(data, file=file)
    except OSError as error:
        raise CommandError(f"{file}: it cannot be kept for the job: {error.strerror}") from error
