"""gbatch --interactive: a job whose container has a terminal. Pure.

The container ends with its standard input, so GPUs are free again as soon as the terminal is closed.
"""

from typing import Final

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail_cli.submit.local import Local
from dovetail_cli.submit.manifest import Submission, with_spec
from dovetail_cli.ui.errors import UsageError

SHELL: Final = ("sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")


def words(*, interactive: bool) -> list[str]:
    """The command of a job that is given none: a shell.

    Raises `UsageError` for a job without a terminal.
    """
    if not interactive:
        raise UsageError(
            "Missing argument SCRIPT|COMMAND: write a script, a command, or - for standard input, such as "
            "gbatch python train.py"
        )
    return list(SHELL)


def check(submission: Submission, *, files: Local) -> None:
    """Check that the job is one container with one run. Raises `UsageError`."""
    excluded = {
        "--array": submission.array is not None,
        "--param": submission.sweep is not None,
        "--nodes": submission.workers > 1,
        "--max-retries": submission.max_retries > 0,
        "--output": files.output is not None,
        "--error": files.error is not None,
    }
    if given := [option for option, is_given in excluded.items() if is_given]:
        raise UsageError(f"--interactive is one terminal in one container: leave {', '.join(given)} out")


def with_terminal(job: GPUJob, *, terminal: str | None) -> GPUJob:
    """The job with standard input, and a terminal of that kind (`$TERM`) if there is one here."""
    spec = spec_of(job.spec.template)
    first, *others = spec["containers"]
    first = {**first, "stdin": True, "stdinOnce": True}
    if terminal is not None:
        first |= {"tty": True, "env": [*(first.get("env") or ()), {"name": "TERM", "value": terminal}]}
    return with_spec(job, spec={**spec, "containers": [first, *others]})
