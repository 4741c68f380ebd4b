"""`#SBATCH` options in gbatch's words, with Slurm's meanings. Pure."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail import names
from dovetail.formats import quantities
from dovetail.formats.quantities import read_whole
from dovetail_cli.ui.errors import UsageError

_SHORT: Final = {
    "J": "job-name", "t": "time", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "p": "partition", "a": "array",
    "d": "dependency", "b": "begin", "D": "chdir", "G": "gpus", "A": "account",
    "o": "output", "e": "error",
}  # fmt: skip
# Options that take no value: what follows them is the next option.
_FLAGS: Final = frozenset(
    {
        *"HIOQWhksv", "contiguous", "exclusive", "hold", "no-kill", "no-requeue", "overcommit", "oversubscribe",
        "parsable", "quiet", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait",
    }
)  # fmt: skip
_WAIT: Final = frozenset({"W", "wait"})
# Options of sbatch's command line alone that take a value.
_ON_THE_LINE: Final = frozenset({"wrap"})
# Options that take a value and have no counterpart.
_OTHERS: Final = frozenset(
    {
        "acctg-freq", "bb", "bbf", "cluster-constraint", "clusters", "comment", "constraint", "container",
        "core-spec", "cores-per-socket", "cpu-freq", "deadline", "delay-boot", "distribution",
        "exclude", "export-file", "extra", "extra-node-info", "gpu-bind", "gpu-freq", "gpus-per-socket",
        "hint", "input", "licenses", "mcs-label", "mem-bind", "network", "nodefile",
        "nodelist", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "open-mode", "prefer", "priority",
        "profile", "propagate", "qos", "reservation", "signal", "sockets-per-node", "switches", "thread-spec",
        "threads-per-core", "time-min", "tmp", "tres-per-task", "uid", "gid", "wait-all-nodes", "wckey",
    }
)  # fmt: skip
_OTHER_SHORT: Final = {
    "C": "constraint", "F": "nodefile", "L": "licenses", "M": "clusters", "S": "core-spec", "B": "extra-node-info",
    "i": "input", "m": "distribution", "q": "qos", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_PLAIN: Final = {
    "array": "--array",
    "begin": "--begin",
    "chdir": "--workdir",
    "account": "--project",
    "job-name": "--name",
    "output": "--output",
    "error": "--error",
    "export": "--export",
}
_VARIABLES: Final = {
    "ntasks": "SLURM_NTASKS",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "partition": "SLURM_JOB_PARTITION",
    "account": "SLURM_JOB_ACCOUNT",
}
_GPUS: Final = re.compile(r"(?:gpu(?::|$))?(?:([A-Za-z][\w.-]*):)?(\d{1,4})?(?:\(.*\))?")
_NO_LIMIT: Final = frozenset({"0", "UNLIMITED", "INFINITE"})
_MEMORY: Final = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MOST: Final = 1_000_000
# What Slurm mails of, in the words of --notify-on.
_MAILS: Final = {
    "BEGIN": "Started", "END": "Finished", "FAIL": "Failed,TimedOut", "REQUEUE": "Preempted", "TIME_LIMIT": "TimedOut",
    "INVALID_DEPEND": "Cancelled", "ALL": "All",
}  # fmt: skip
_DEPENDENCY: Final = re.compile(r"afterok((?::[\w.-]+)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What the lines say.

    words       the words of gbatch
    variables   Slurm's variables
    without     options that have no counterpart
    of_no_gpus  options for each GPU, where the lines request none
    """

    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    of_no_gpus: tuple[str, ...] = ()


def read(words: Sequence[str], *, source: str = "#SBATCH") -> Read:
    """All options of a script, or of sbatch's command line, together.

    `source` is what errors call them.

    Raises `UsageError` for a value that cannot be.
    """
    try:
        return _read(words)
    except UsageError as error:
        raise UsageError(str(error).replace("#SBATCH", source, 1)) from error


def split(
    words: Sequence[str], *, ours: Sequence[str], flags: Sequence[str] = ()
) -> tuple[list[tuple[str, str | None, list[str]]], list[str]]:
    """The options of sbatch's command line, and the script with its arguments.

    An option is its long name, its value, and how it is spelled. `ours` are further names with a value, `flags` are
    further ones without. Raises `UsageError` for an option that sbatch does not have.
    """
    options, left = [], list(words)
    without_value = {*_FLAGS, *flags}
    known = {*without_value, *_ON_THE_LINE, *_MEANT, *_OTHERS, *ours}
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        name, value, shown = _named(word)
        if name not in known:
            raise UsageError(f"sbatch {shown}: no such option")
        spelled = [word]
        if value is None and name not in without_value:
            if not left:
                raise UsageError(f"sbatch {shown}: a value is missing")
            value = left.pop(0)
            spelled.append(value)
        options.append((name, value, spelled))
    return options, left


def _named(word: str) -> tuple[str, str | None, str]:
    """An option's long name, its value if the word has it, and how it is written."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None, f"--{name}"
    return _SHORT.get(word[1], _OTHER_SHORT.get(word[1], word[1])), word[2:].removeprefix("=") or None, word[:2]


def _read(words: Sequence[str]) -> Read:
    said: dict[str, str] = {}
    without: list[str] = []
    waits: list[str] = []
    for name, shown, value in _options(words):
        if name in _MEANT:
            said[name] = value
        elif name in _WAIT:
            waits = ["--wait"]
        else:
            without.append(shown)
    without += _unsent_mails(said)
    found = [*(word for tell in _TELLERS for word in tell(said)), *waits]
    return Read(
        words=tuple(found),
        variables=_variables(said),
        without=tuple(dict.fromkeys(without)),
        of_no_gpus=() if _gpu_count(said) else tuple(f"--{name}" for name in _FOR_EACH_GPU if name in said),
    )


def ignored(*, without: Sequence[str], of_no_gpus: Sequence[str], source: str = "") -> Iterator[str]:
    """A sentence for each kind of options that change nothing; `source` is what they are called."""
    for options, why in ((without, "Dovetail has no equivalent"), (of_no_gpus, "no option there requests a GPU")):
        if options:
            yield f"ignored {source}{', '.join(options)}: {why}"


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each option's long name, how it was written, and its value."""
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            shown = f"--{name}"
        elif word.startswith("-") and len(word) > 1:
            name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            shown, equals = word[:2], value
        else:
            raise UsageError(f'#SBATCH "{word}": write options, such as --time=10 or -p a100')
        if not equals and name not in _FLAGS and left and not left[0].startswith("-"):
            value = left.pop(0)
        if name in _MEANT and not value:
            raise UsageError(f"#SBATCH {shown}: a value is missing")
        yield name, shown, value


def _plain(said: Mapping[str, str]) -> Iterator[str]:
    for name, option in _PLAIN.items():
        if name in said:
            yield from (option, said[name])


def _time(said: Mapping[str, str]) -> Iterator[str]:
    if "time" in said and said["time"].upper() not in _NO_LIMIT:
        yield from ("--time", said["time"])


def _nodes(said: Mapping[str, str]) -> Iterator[str]:
    if "nodes" in said:
        yield from ("--nodes", str(_node_count(said)))


def _node_count(said: Mapping[str, str]) -> int:
    # A range asks for as few as the first number.
    return _number(said, name="nodes", text=said.get("nodes", "1").partition("-")[0])


def _gpus(said: Mapping[str, str]) -> Iterator[str]:
    if (found := _request(said)) is not None:
        count, model = found
        yield from ("--gpus", f"{count}({model})" if model and count else str(count))


def _request(said: Mapping[str, str]) -> tuple[int, str] | None:
    """The GPUs of each worker and their model; None without an option that requests any."""
    name = next((name for name in ("gres", "gpus-per-node", "gpus", "gpus-per-task") if name in said), None)
    if name is None:
        return None
    found = _GPUS.fullmatch(said[name])
    if found is None or (name == "gres" and not said[name].startswith("gpu")) or not said[name].strip(":"):
        raise UsageError(f'#SBATCH --{name} "{said[name]}": write a number of GPUs, such as '
                         f"{'gpu:2 or gpu:a100:2' if name == 'gres' else '2 or a100:2'}")  # fmt: skip
    count = int(found[2] or 1)
    if name == "gpus-per-task":
        count *= _tasks(said)
    if name == "gpus":
        nodes = _node_count(said)
        if count % nodes:
            raise UsageError(f'#SBATCH --gpus "{said[name]}": {nodes} nodes cannot have equally many of them')
        count //= nodes
    return count, (found[1] or "").upper()


def _gpu_count(said: Mapping[str, str]) -> int:
    """The GPUs of each worker."""
    found = _request(said)
    return 0 if found is None else found[0]


def _host(said: Mapping[str, str]) -> Iterator[str]:
    """CPUs and memory of each node: of all its tasks together."""
    cpus = _cpus(said)
    if cpus is not None:
        yield from ("--cpus", str(cpus))
    if "mem" in said:
        yield from ("--memory", f"{_mebibytes(said, name='mem')}M")
    elif "mem-per-cpu" in said:
        yield from ("--memory", f"{_mebibytes(said, name='mem-per-cpu') * (cpus or 1)}M")
    elif "mem-per-gpu" in said and (gpus := _gpu_count(said)):
        yield from ("--memory", f"{_mebibytes(said, name='mem-per-gpu') * gpus}M")


def _cpus(said: Mapping[str, str]) -> int | None:
    if "cpus-per-gpu" in said and "cpus-per-task" not in said:
        gpus = _gpu_count(said)
        return _number(said, name="cpus-per-gpu") * gpus if gpus else None
    if not said.keys() & {"ntasks", "ntasks-per-node", "cpus-per-task"}:
        return None
    return _tasks(said) * (_number(said, name="cpus-per-task") if "cpus-per-task" in said else 1)


def _tasks(said: Mapping[str, str]) -> int:
    """The tasks of each node."""
    if "ntasks-per-node" in said:
        return _number(said, name="ntasks-per-node")
    tasks = _number(said, name="ntasks") if "ntasks" in said else 1
    return math.ceil(tasks / _node_count(said))


def _variables(said: Mapping[str, str]) -> dict[str, str]:
    """Slurm's variables that follow from options; `with_slurm_variables` adds the others."""
    number = f"$({names.ENV_JOB_ID})"
    found = {"SLURM_JOB_ID": number, "SLURM_JOBID": number}
    if "ntasks-per-node" in said:
        found["SLURM_NTASKS"] = str(_tasks(said) * _node_count(said))
    return found | {name: said[option] for option, name in _VARIABLES.items() if option in said}


def _partition(said: Mapping[str, str]) -> Iterator[str]:
    if "partition" in said:
        if "," in said["partition"]:
            raise UsageError(f'#SBATCH --partition "{said["partition"]}": a job asks for one pool: name one')
        # A pool is a label's value, in lower case.
        yield from ("--pool", said["partition"].lower().replace("_", "-"))


def _dependency(said: Mapping[str, str]) -> Iterator[str]:
    if "dependency" not in said:
        return
    text = said["dependency"]
    parts = [_DEPENDENCY.fullmatch(part) for part in re.split(r"[,?]", text)]
    jobs = [job for part in parts if part is not None for job in part[1].strip(":").split(":")]
    if not all(parts) or ("," in text and "?" in text):
        raise UsageError(
            f'#SBATCH --dependency "{text}": only afterok is known, such as afterok:7:8 or afterok:7?afterok:8'
        )
    yield from ("--depends-on-any" if "?" in text else "--depends-on-all", ",".join(jobs))


def _mails(said: Mapping[str, str]) -> Iterator[str]:
    """As in Slurm nothing is sent without a type."""
    on = [_MAILS[kind] for kind in _mail_types(said) if kind in _MAILS]
    if on and "@" in said.get("mail-user", ""):
        yield from ("--notify-email", said["mail-user"], "--notify-on", ",".join(on))


def _unsent_mails(said: Mapping[str, str]) -> list[str]:
    """What Dovetail ignores of the mail options: unknown kinds, and users without an address."""
    kinds = _mail_types(said)
    if kinds and "@" not in said.get("mail-user", ""):
        return ["--mail-user" if "mail-user" in said else "--mail-type"]
    return [f"--mail-type={kind}" for kind in kinds if kind not in _MAILS]


def _mail_types(said: Mapping[str, str]) -> list[str]:
    kinds = [kind.strip().upper() for kind in said.get("mail-type", "").split(",")]
    return [kind for kind in kinds if kind not in {"", "NONE"}]


def _number(said: Mapping[str, str], *, name: str, text: str | None = None) -> int:
    text = said[name] if text is None else text
    number = read_whole(text, otherwise=0)
    if not 1 <= number <= _MOST:
        raise UsageError(f'#SBATCH --{name} "{said[name]}": write a whole number from 1 to {_MOST}')
    return number


def _mebibytes(said: Mapping[str, str], *, name: str) -> int:
    found = _MEMORY.fullmatch(said[name])
    try:
        mebibytes = quantities.mebibytes(f"{found[1]}{found[2].upper() or 'M'}i") if found else 0
    except quantities.QuantityError:
        mebibytes = 0
    if mebibytes < 1:
        raise UsageError(f'#SBATCH --{name} "{said[name]}": write a number with K, M, G or T, such as 16G')
    return mebibytes


_TELLERS: Final[Sequence[Callable[[Mapping[str, str]], Iterator[str]]]] = (
    _plain, _time, _nodes, _gpus, _host, _partition, _dependency, _mails,
)  # fmt: skip
_FOR_EACH_GPU: Final = ("cpus-per-gpu", "mem-per-gpu")
_MEANT: Final = frozenset(
    {
        *_SHORT.values(),
        "gres",
        "gpus-per-node",
        "gpus-per-task",
        *_FOR_EACH_GPU,
        "ntasks-per-node",
        "mem",
        "mem-per-cpu",
        "mail-user",
        "mail-type",
        "export",
    }
)
