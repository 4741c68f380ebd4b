"""What v2's tasks run on this machine: the file that the gateway reads for each task."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.kube.auth.connection import load_connection
from dovetail_cli.submit import local
from dovetail_cli.tasks.command_line import TaskPlace, task_templates
from dovetail_cli.ui.errors import CommandError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Checked command lines, and the folder in which they run."""

    train: str | None
    infer: str | None
    workdir: Path


def asked(*, train: str | None, infer: str | None, workdir: Path | None, simulated: bool) -> Tasks | None:
    """The tasks that options ask for; None without any. Raises `UsageError`."""
    if train is None and infer is None:
        if workdir is not None:
            raise UsageError(f"--workdir {workdir}: it is the folder of --train and --infer, and neither is given")
        return None
    if simulated:
        raise UsageError("--train and --infer need this machine as the node: on simulated nodes nothing runs")
    folder = (workdir or Path()).absolute()
    if not folder.is_dir():
        raise UsageError(f"--workdir {workdir}: there is no such folder")
    task_templates(train=train, infer=infer, place=TaskPlace())
    return Tasks(train=train, infer=infer, workdir=folder)


def keep(tasks: Tasks, *, file: Path, kubeconfig: Path) -> None:
    """Write the templates, with the environment of this process.

    A kind that is not asked for keeps its template. Raises `CommandError`.
    """
    place = TaskPlace(workdir=str(tasks.workdir))
    if (data := load_connection(kubeconfig).local_data) is not None:
        place = replace(place, annotations=local.leave_environment(data))
    try:
        before = load_yaml(file.read_text(encoding="utf-8"))
        kept = before if isinstance(before, dict) else {}
        found = {**kept, **task_templates(train=tasks.train, infer=tasks.infer, place=place)}
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(yaml.safe_dump(found, sort_keys=False), encoding="utf-8")
        fresh.replace(file)
    except (OSError, YAMLTextError) as error:
        raise CommandError(f"{file}: what tasks run cannot be kept: {error}") from error
