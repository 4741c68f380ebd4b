"""The way of a function to its job and back: files on one's own machine, the manifest and the log on a cluster.

On one's own machine the job reads a folder that only its user may read, runs in this directory with this environment,
and leaves its outcome in that folder. On a cluster the function is in the command, and the outcome in the log.
"""

import base64
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from dovetail import names
from dovetail.decoding import UnreadableError
from dovetail.jobs.local_submission import Folders
from dovetail.sdk import local_files
from dovetail.sdk.errors import InvalidError
from dovetail.sdk.functions import outcomes, runner
from dovetail.sdk.functions.outcomes import Outcome

# The API server stores a job in one object of at most 1.5 MB, and copies of it in the batch Job and the pods.
MOST_SENT_BYTES: Final = 256 * 1024
# How the runner's text begins, in each version of it.
_RUNNER: Final = '"""Call a function in a job'
# Linux takes at most 128 KiB as one argument.
_PART: Final = 96 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the job of a function runs, and where.

    command      the command
    environment  the name of the file with its environment; empty for none
    directory    its working directory; empty for that of the image
    folder       where its outcome will be; None if the log has it
    word         what the log has before its outcome; a program that prints data of others does not know it
    task         which of the calls it is
    lasts        whether its outcome stays once it is read: others may ask for it
    new          whether no earlier submission has sent the same
    """

    command: tuple[str, ...]
    environment: str = ""
    directory: str = ""
    folder: Path | None = None
    word: str = field(default="", repr=False)
    task: int = 0
    lasts: bool = False
    new: bool = field(default=True, compare=False)

    def completed(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of the GPUJob with directory and environment."""
        if not self.directory:
            return dict(spec)
        template = spec["template"]
        (container,) = template["spec"]["containers"]
        containers = [{**container, "workingDir": self.directory}]
        metadata = {"annotations": {names.ENVIRONMENT: self.environment}}
        return {**spec, "template": {"metadata": metadata, "spec": {**template["spec"], "containers": containers}}}

    def outcome(self, *, task: int, worker: int) -> Outcome | None:
        """The outcome in the folder, which is whole as soon as it is there; None without one."""
        if self.folder is None:
            return None
        try:
            return outcomes.read((self.folder / f"outcome-{task}-{worker}").read_bytes())
        except (OSError, UnreadableError):
            return None

    def begun(self, time: datetime) -> "Sent":
        """The same for a job of that time. What an earlier job has left, which is deleted by now, is none of its."""
        for file in () if self.folder is None or self.new else self.folder.glob("outcome-*"):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < time.timestamp():
                    file.unlink()
        return self

    def forget(self) -> None:
        """Remove what only this job needed."""
        if self.folder is not None and not self.lasts:
            shutil.rmtree(self.folder, ignore_errors=True)


def send(packed: bytes, *, data: Path | None, python: str | None, key: str | None = None) -> Sent:
    """Make a packed function ready to run.

    `data` is the folder of this machine's queue; None on a cluster. `python` is the interpreter, by default this one on
    this machine and `python3` of the image. With a `key`, the same function is sent in the same words: it is the same
    request. Raises `InvalidError` for one that is too large for a cluster, and for an interpreter that this
    machine does not have.
    """
    source = Path(runner.__file__).read_text(encoding="utf-8")
    word = secrets.token_hex(16) if key is None else sha256(key.encode() + b"\0" + packed).hexdigest()[:32]
    if data is None:
        return Sent(command=(python or "python3", "-c", source, "-", word, *_parts(packed)), word=word)
    if python is not None and shutil.which(python) is None:
        raise InvalidError(f'python "{python}": this machine has no such program', status=422, reason="Invalid")
    folder = Folders(data).calls / word
    return Sent(
        command=(python or sys.executable, "-c", source, str(folder)),
        environment=word,
        directory=str(Path.cwd()),
        folder=folder,
        lasts=key is not None,
        new=_kept(packed, folders=Folders(data), word=word),
    )


def _kept(packed: bytes, *, folders: Folders, word: str) -> bool:
    """Keep the function and this environment for the job; False if an earlier submission has."""
    with suppress(FileExistsError):
        local_files.keep(local_files.encoded(local_files.own(os.environ)), file=folders.environments / word)
    made, folder = folders.calls / secrets.token_hex(16), folders.calls / word
    local_files.keep(packed, file=made / "call")
    try:
        # Whole as soon as it is there: the job of another submission of the same may begin at any time.
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)
        if not folder.exists():
            raise
        return False
    return True


def sent_before(spec: Mapping[str, Any], *, data: Path | None) -> Sent | None:
    """The way of the function that a job calls, by the spec of its GPUJob; None for a job of a command."""
    (container, *_) = ((spec.get("template") or {}).get("spec") or {}).get("containers") or [{}]
    variables = {each.get("name"): each.get("value") for each in container.get("env") or ()}
    index = variables.get(names.ENV_TASK_ID) or ""
    task = int(index) if index.isdecimal() else 0
    match container.get("command"):
        case [_, "-c", str(source), "-", str(word), *_] if source.startswith(_RUNNER):
            return Sent(command=(), word=word, task=task)
        case [_, "-c", str(source), str(folder)] if source.startswith(_RUNNER) and data is not None:
            # The spec says any path, and what is in it would be unpickled.
            if Path(folder).parent == Folders(data).calls:
                return Sent(command=(), folder=Path(folder), task=task, lasts=True)
    return None


def withdraw(sent: Sent, *, data: Path | None) -> None:
    """Remove what was kept for a job that was refused."""
    if data is None or sent.folder is None or not sent.new:
        return
    shutil.rmtree(sent.folder, ignore_errors=True)
    with suppress(OSError):
        (Folders(data).environments / sent.environment).unlink()


def _parts(packed: bytes) -> Sequence[str]:
    text = base64.b64encode(packed).decode()
    if len(text) > MOST_SENT_BYTES:
        message = (
            f"the function and its arguments have {len(text):,} bytes, and at most {MOST_SENT_BYTES:,} travel with a "
            "job: put large values on a volume and pass the path"
        )
        raise InvalidError(message, status=422, reason="Invalid")
    return [text[at : at + _PART] for at in range(0, len(text), _PART)]
