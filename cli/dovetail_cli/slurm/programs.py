"""What runs when `sbatch`, `squeue`, `scancel` or `sinfo` is typed.

A module of its own: `app` loads it by name when one of these is typed; `names` only installs them.
"""

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Final

from dovetail_cli import app
from dovetail_cli.slurm import translation
from dovetail_cli.slurm.translation import Translated
from dovetail_cli.submit import sbatch

# By name: our command, and how a command line becomes its words.
PROGRAMS: Final[Mapping[str, tuple[str, Callable[[Sequence[str]], Translated]]]] = {
    "sbatch": ("gbatch", translation.sbatch),
    "squeue": ("gqueue", translation.squeue),
    "scancel": ("gcancel", translation.scancel),
    "sinfo": ("ginfo", translation.sinfo),
}
_VERSION: Final = (["-V"], ["--version"])
_HELP: Final = {
    "sbatch": "the options of #SBATCH lines, --wrap, --parsable, --test-only; and --image, --env, --volume, "
    "--node-selector, --cpu-fallback, --wait-for-capacity",
    "squeue": "-u -j -t -n -A -i -l -h -o %i%j%t%T%M%l%D%R%N%u%a%p%b%m%S -O --start --json --yaml",
    "scancel": "numbers, -n NAME",
    "sinfo": "-N -l -a --json --yaml",
}


def run(name: str, *, arguments: Sequence[str]) -> int:
    """Run the program and return its exit code.

    Raises `UsageError` for a command line that cannot be translated.
    """
    command, translate = PROGRAMS[name]
    if list(arguments) in _VERSION:
        return app.run(command, arguments=["--version"], prog=name)
    if {"--help", "--usage"} & set(arguments):
        print(f"{name}: {command} with Slurm's options: {_HELP[name]}; and --kubeconfig, --context, --namespace.")
        print(f"`{command} --help` tells more.")
        return 0
    asked = translate(arguments)
    for sentence in sbatch.ignored(without=asked.without, of_no_gpus=asked.of_no_gpus):
        print(f"dovetail: {sentence}", file=sys.stderr)
    if asked.header and not asked.parsable:
        return app.run(command, arguments=asked.words, prog=name)
    answer = io.StringIO()
    with redirect_stdout(answer):
        code = app.run(command, arguments=asked.words, prog=name)
    number = re.search(r"\d+", answer.getvalue()) if asked.parsable else None
    kept = answer.getvalue().partition("\n")[2] if number is None and not asked.parsable else ""
    sys.stdout.write(f"{number[0]}\n" if number is not None else kept)
    return code
