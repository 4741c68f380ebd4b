"""gbatch's -o and -e on a cluster: files in the container, in addition to the log. Pure.

A shell runs the command, copies its output with `tee`, passes SIGTERM on, and ends with the command's exit code. The
image needs `sh`, `tee`, `mkfifo`, `mktemp` and `mkdir`.

A module of its own: a shell program and its quoting, which know nothing of clusters.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail import names

_PLACEHOLDER: Final = re.compile(r"%([%jAxauN])")
_BEFORE: Final = """pipes=`mktemp -d` || exit 1
log() {
  case "$2" in */*) mkdir -p "${2%/*}" || return 1 ;; esac
  true >>"$2" && mkfifo "$pipes/$1"
}
"""
# What the command leaves running may hold the pipes open for ever.
_AFTER: Final = """child=$!
trap 'kill -TERM "$child"' TERM
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
(sleep 5; kill $copies) >/dev/null 2>&1 &
wait $copies
rm -rf "$pipes"
exit "$code"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFiles:
    """File names with Slurm's placeholders, relative to the job's directory.

    output   the file of its output; None for none
    error    the file of its errors; None for that of the output
    name     the job's name, `%x`
    user     who submits it, `%u`
    workers  the number of workers; all but the first add a number to the names
    """

    output: str | None
    error: str | None
    name: str
    user: str
    workers: int = 1


def with_files(command: Sequence[str], *, files: OutputFiles) -> list[str]:
    """The command with its output in these files too; unchanged without any."""
    if files.output is None and files.error is None:
        return list(command)
    script = f'{_BEFORE}copies=\n{"".join(_copies(files))}"$@" {_redirected(files)} &\n{_AFTER}'
    return ["/bin/sh", "-c", script, "dovetail-output", *command]


def _copies(files: OutputFiles) -> Iterator[str]:
    """A `tee` for each file; that of the errors prints to standard error."""
    for pipe, pattern, then in (("out", files.output, ""), ("err", files.error, " >&2")):
        if pattern is not None:
            yield (
                f'file={_expanded(pattern, files=files)}; log {pipe} "$file" || exit 1\n'
                f'tee -a "$file" <"$pipes/{pipe}"{then} & copies="$copies $!"\n'
            )


def _redirected(files: OutputFiles) -> str:
    if files.output is None:
        return '2>"$pipes/err"'
    return '>"$pipes/out" 2>&1' if files.error is None else '>"$pipes/out" 2>"$pipes/err"'


def _expanded(pattern: str, *, files: OutputFiles) -> str:
    """A shell word: what is known only in the container comes from variables."""
    values = {
        "%": "%",
        "j": f'"${names.ENV_JOB_ID}"',
        "A": f'"${{{names.ENV_ARRAY_JOB_ID}:-${names.ENV_JOB_ID}}}"',
        "a": f'"${names.ENV_TASK_ID}"',
        "N": '"$HOSTNAME"',
        "x": shlex.quote(files.name.replace("/", "-")),
        "u": shlex.quote(files.user),
    }
    texts = _PLACEHOLDER.split(pattern)
    parts = [values[text] if at % 2 else shlex.quote(text) for at, text in enumerate(texts) if at % 2 or text]
    # The Job controller numbers workers in this variable.
    other = '"`[ "$JOB_COMPLETION_INDEX" = 0 ] || echo .$JOB_COMPLETION_INDEX`"' if files.workers > 1 else ""
    return "".join(parts) + other
