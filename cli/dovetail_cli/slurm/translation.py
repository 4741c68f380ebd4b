"""Slurm's command lines in the words of our commands, with Slurm's meanings. Pure."""

import getopt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.query.errors import InvalidQueryError
from dovetail.query.jobs.states import parse_states
from dovetail_cli.submit import sbatch as directives
from dovetail_cli.ui.errors import UsageError

# Options of ours that each of the names takes too.
_OURS: Final = ("kubeconfig", "context", "namespace")
_OF_GBATCH: Final = (*_OURS, "image", "env", "volume", "node-selector")
# Those without a value: what gbatch names where no node could ever run a job.
_FLAGS_OF_GBATCH: Final = ("cpu-fallback", "wait-for-capacity")
_LONG_FIELDS: Final = "JOBID,NAME,USER,SLURM_STATE,TIME,TIMELIMIT,NODES,NODELIST(REASON)"
_START_FIELDS: Final = "JOBID,NAME,USER,ST,ETA,NODES,NODELIST(REASON)"
_LETTERS: Final[Mapping[str, str]] = {
    "i": "JOBID", "A": "JOBID", "F": "JOBID", "j": "NAME", "t": "ST", "T": "SLURM_STATE", "M": "TIME", "l": "TIMELIMIT",
    "D": "NODES", "R": "NODELIST(REASON)", "N": "NODE", "u": "USER", "a": "PROJECT", "p": "PRIORITY", "Q": "PRIORITY",
    "b": "GPUS", "m": "MEMORY", "S": "ETA",
}  # fmt: skip
_WORDS: Final[Mapping[str, str]] = {
    "jobid": "JOBID", "jobarrayid": "JOBID", "name": "NAME", "state": "SLURM_STATE", "statecompact": "ST",
    "timeused": "TIME", "timelimit": "TIMELIMIT", "numnodes": "NODES", "reasonlist": "NODELIST(REASON)",
    "nodelist": "NODE", "username": "USER", "account": "PROJECT", "prioritylong": "PRIORITY", "priority": "PRIORITY",
    "starttime": "ETA",
}  # fmt: skip
_LETTER: Final = re.compile(r"%[.\-]?\d*([A-Za-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A command line of Slurm's.

    words       the words of our command
    without     the options that have no counterpart
    of_no_gpus  the options for each GPU, where no GPU is requested
    header      whether the first line of the answer is wanted
    parsable    whether the answer is the number alone
    """

    words: tuple[str, ...]
    without: tuple[str, ...] = ()
    of_no_gpus: tuple[str, ...] = ()
    header: bool = True
    parsable: bool = False


def sbatch(words: Sequence[str]) -> Translated:
    """The words of gbatch. Raises `UsageError`."""
    options, rest = directives.split(words, ours=_OF_GBATCH, flags=_FLAGS_OF_GBATCH)
    own: list[str] = []
    slurm: list[str] = []
    parsable = False
    for name, value, spelled in options:
        match name:
            case "parsable":
                parsable = True
            case "test-only":
                own.append("--dry-run")
            case "wrap":
                if rest:
                    raise UsageError(f'sbatch --wrap "{value}": it is the whole script: leave "{rest[0]}" out')
                rest = [value or ""]
            case _ if name in _FLAGS_OF_GBATCH:
                own += spelled
            case _ if name in _OF_GBATCH:
                own += [f"--{name}", value or ""]
            case _:
                slurm += spelled
    read = directives.read(slurm, source="sbatch")
    variables = [word for name, value in read.variables.items() for word in ("--env", f"{name}={value}")]
    words = (*read.words, *variables, *own, *(rest or ["-"]))
    return Translated(words=words, without=read.without, of_no_gpus=read.of_no_gpus, parsable=parsable)


def squeue(words: Sequence[str]) -> Translated:
    """The words of gqueue. Raises `UsageError`."""
    said, rest = _options(
        "squeue",
        words=words,
        short="u:j:t:n:A:p:i:o:O:S:w:q:M:hlasrv",
        long="user= jobs= states= name= account= partition= iterate= format= Format= sort= nodelist= qos= clusters= "
        "noheader long all start array verbose json yaml me",
    )
    if rest:
        raise UsageError(f'squeue "{rest[0]}": write options, such as squeue -j {rest[0]}')
    ours: list[str] = []
    without: list[str] = []
    for option, value in said:
        match option:
            case "-t" | "--states":
                ours += ["-a"] if value.lower() == "all" else ["-s", _states(value, option=option)]
            case "-i" | "--iterate":
                ours += ["-w", "--interval", value]
            case "-o" | "--format":
                ours += ["-f", _fields_of_letters(value)]
            case "-O" | "--Format":
                ours += ["-f", _fields_of_words(value)]
            case "--me":
                raise UsageError("squeue --me: name the user as the API server knows you, such as squeue -u ada")
            case _ if (known := _SQUEUE.get(option)) is not None:
                ours += [*known, *([value] if value else [])]
            case _:
                without.append(option)
    header = not any(option in {"-h", "--noheader"} for option, _ in said)
    return Translated(words=tuple(ours), without=tuple(without), header=header)


def _states(text: str, *, option: str) -> str:
    """The states, which exist. Raises `UsageError`."""
    try:
        parse_states(text, field=f"squeue {option}")
    except InvalidQueryError as error:
        raise UsageError(str(error)) from error
    return text


def scancel(words: Sequence[str]) -> Translated:
    """The words of gcancel. Raises `UsageError`."""
    said, jobs = _options(
        "scancel",
        words=words,
        short="n:u:t:p:A:s:Qvibf",
        long="name= jobname= user= state= partition= account= signal= quiet verbose interactive batch full hurry me",
    )
    ours: list[str] = []
    for option, value in said:
        match option:
            case "-n" | "--name" | "--jobname":
                jobs.append(value)
            case _ if option.removeprefix("--") in _OURS:
                ours += [option, value]
            case _ if value or option == "--me":
                raise UsageError(
                    f"scancel {option}: jobs are cancelled by number or name, such as scancel 7 or -n train"
                )
    if not jobs:
        raise UsageError("scancel: name the jobs, such as scancel 7 or scancel -n train")
    return Translated(words=(*ours, *jobs))


def sinfo(words: Sequence[str]) -> Translated:
    """The words of ginfo. Raises `UsageError`."""
    said, rest = _options(
        "sinfo",
        words=words,
        short="n:p:t:o:O:S:i:M:Nlesahdr",
        long="nodes= partition= states= format= Format= sort= iterate= clusters= Node long exact summarize all "
        "noheader dead responding json yaml",
    )
    if rest:
        raise UsageError(f'sinfo "{rest[0]}": it takes options only, such as sinfo --json')
    ours: list[str] = []
    without: list[str] = []
    for option, value in said:
        if option in {"--json", "--yaml"}:
            ours += ["-o", option.removeprefix("--")]
        elif option.removeprefix("--") in _OURS:
            ours += [option, value]
        elif option not in {"-N", "--Node", "-l", "--long", "-a", "--all"}:
            # ginfo shows each node and device at length in any case.
            without.append(option)
    return Translated(words=tuple(ours), without=tuple(without))


# Options of squeue, and the words that come before their value in gqueue; none is what gqueue does in any case.
_SQUEUE: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("-u", "--user"), ("-u",)),
    **dict.fromkeys(("-j", "--jobs"), ("-j",)),
    **dict.fromkeys(("-n", "--name"), ("-N",)),
    **dict.fromkeys(("-A", "--account"), ("-P",)),
    **dict.fromkeys(("-l", "--long"), ("-f", _LONG_FIELDS)),
    "--start": ("-s", "PD", "-f", _START_FIELDS),
    "--json": ("-o", "json"),
    "--yaml": ("-o", "yaml"),
    **dict.fromkeys(("-h", "--noheader", "-a", "--all", "-r", "--array", "-v", "--verbose"), ()),
    **{f"--{name}": (f"--{name}",) for name in _OURS},
}


def _options(name: str, *, words: Sequence[str], short: str, long: str) -> tuple[list[tuple[str, str]], list[str]]:
    known = [*long.split(), *(f"{each}=" for each in _OURS)]
    try:
        return getopt.gnu_getopt(list(words), short, known)
    except getopt.GetoptError as error:
        raise UsageError(f"{name}: {error} (see `{name} --help`)") from error


def _fields_of_letters(text: str) -> str:
    letters = _LETTER.findall(text)
    unknown = next((letter for letter in letters if letter not in _LETTERS), None)
    if unknown is not None or not letters:
        allowed = ", ".join(f"%{letter} {field}" for letter, field in _LETTERS.items())
        raise UsageError(
            f'squeue -o "{text}": {f"%{unknown} is unknown" if unknown else "no field"}; allowed are {allowed}'
        )
    return ",".join(_LETTERS[letter] for letter in letters)


def _fields_of_words(text: str) -> str:
    fields = []
    for word in text.split(","):
        field = _WORDS.get(word.partition(":")[0].strip().lower())
        if field is None:
            raise UsageError(f'squeue -O "{word}": unknown field, allowed are {", ".join(_WORDS)}')
        fields.append(field)
    return ",".join(fields)
