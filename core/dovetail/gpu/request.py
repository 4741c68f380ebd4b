"""GPU requests: the compact text and the structured form, one value for both. Pure; no I/O.

    RequestError   a request that cannot be read: the text, the place, what is allowed

The text is `[COUNTx][MEMORY,]SHARE|COUNT[(selector)][@[NODE/]cuda:N]`, its selector
`[VENDOR,][MODEL|MODEL][,!MODEL…][,>=SIZE]`; for MIG instances `[COUNTx]PROFILE[(MODEL|MODEL)]`:

    2             two whole devices                 0.5            half a device
    2(V100)       of that model                     1(nvidia,V100) of that vendor and model
    8G,0.5        8 GiB and half the compute        2x8G,0.5(T4)   twice that, on T4s
    4(A100|H100)  either model                      0.5@cuda:1     on the device with index 1 of its node
    2(!T4,!P4)    any model but these               50%,0.5        half of the memory of the device, and of the compute
    1@a/cuda:0    on the device with index 0 of node a
    2(>=32G)      of a nominal size of 32 GB or more, by the table of models: 80 admits an 80 GB card that reports 79.2

Full-width brackets, commas and signs are read too.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from dovetail.gpu import mig
from dovetail.gpu.memory import percent_of
from dovetail.gpu.models import VENDORS, Model, normalise

WHOLE_MILLI: Final = 1000
MAX_COUNT: Final = 9999
MAX_NOMINAL_GB: Final = 9999
_ALL_PERCENT: Final = 100
# Beyond every machine, and small enough that no sum of the engine exceeds 64 bits.
MAX_MEMORY_MIB: Final = 1 << 40
# As long as a text of 128 characters that names a node with the longest name.
MAX_TEXT: Final = 384
# Longer than the text of any structured request. A text is compared with each device, and remembered: an annotation of
# megabytes would cost all its readers time and memory.
MOST_CHARACTERS: Final = 8192
# The number of characters of a text that errors repeat, and of the problem.
_TEXT_SHOWN: Final = MAX_TEXT
_PROBLEM_SHOWN: Final = 1024
_MOST_DIGITS: Final = 64
_LONGEST_NAME: Final = 128
EXAMPLES: Final = "2, 0.5, 2(V100), 8G,0.5, 2x8G,0.5(T4) or 1g.10gb"

# The same grammar as a regular expression (RE2 and Python alike), for the schema. Every text that it admits and that
# `NO_REQUEST_PATTERN` does not match can be read, except memory that is not a whole number of MiB.
_NODE_PATTERN: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_INDEX_PATTERN: Final = rf"({_NODE_PATTERN}/)?cuda:[0-9]{{1,3}}"
_COUNT_PATTERN: Final = r"[1-9][0-9]{0,3}(\.0+)?"
_SHARE_PATTERN: Final = r"(1(\.0+)?|0\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2})0*)"
_PERCENT_PATTERN: Final = r"([1-9][0-9]?|100)[%％]"
_MEMORY_PATTERN: Final = rf"([1-9][0-9]{{0,8}}(\.[0-9]+)?[MmGg]([Ii]?[Bb]?)|{_PERCENT_PATTERN})\s*[,，]\s*"
_NAME_PATTERN: Final = r"\s*[A-Za-z0-9][A-Za-z0-9 ._-]*"
_ONE_PATTERN: Final = rf"({_MEMORY_PATTERN})?{_SHARE_PATTERN}"
_AMOUNT_PATTERN: Final = rf"({_COUNT_PATTERN}|([1-9][0-9]{{0,3}}[xX])?{_ONE_PATTERN})"
_SIZE_PATTERN: Final = r"\s*[>＞][=＝]\s*[1-9][0-9]{0,3}[Gg][Ii]?[Bb]?\s*"
_EXCLUDED_PATTERN: Final = rf"\s*[!！]{_NAME_PATTERN}"
_MODELS_PATTERN: Final = (
    rf"(\s*(?i:{'|'.join(VENDORS)})\s*[,，])?({_NAME_PATTERN}([|｜]{_NAME_PATTERN})*|{_EXCLUDED_PATTERN})"
    rf"([,，]{_EXCLUDED_PATTERN})*([,，]{_SIZE_PATTERN})?"
)
_SELECTOR_PATTERN: Final = rf"\s*([(（]({_MODELS_PATTERN}|{_SIZE_PATTERN})[)）])?\s*"
_OF_MODELS_PATTERN: Final = rf"\s*([(（]{_NAME_PATTERN}([|｜]{_NAME_PATTERN})*[)）])?\s*"
_INSTANCES_PATTERN: Final = rf"([1-9][0-9]{{0,3}}[xX])?(?i:{mig.PROFILE_PATTERN}){_OF_MODELS_PATTERN}"
PATTERN: Final = (
    rf"^\s*({_AMOUNT_PATTERN}{_SELECTOR_PATTERN}|(1[xX])?{_ONE_PATTERN}{_SELECTOR_PATTERN}[@＠]{_INDEX_PATTERN}\s*"
    rf"|{_INSTANCES_PATTERN})$"
)
# What one device gives of itself: a share, or memory and a share.
PART_PATTERN: Final = rf"^{_ONE_PATTERN}$"
# RE2 has no lookahead, so `PATTERN` takes a vendor for the model of a MIG instance; the parser does not.
NO_REQUEST_PATTERN: Final = (
    rf"^\s*([0-9]+[xX])?(?i:{mig.PROFILE_PATTERN})\s*[(（]\s*(?i:{'|'.join(VENDORS)})\s*[)）]\s*$"
)
# The structured form's `device`.
DEVICE_PATTERN: Final = rf"^(cuda|cpu|{_INDEX_PATTERN})$"
MAX_DEVICE: Final = 253 + len("/cuda:999")

_FULL_WIDTH: Final = str.maketrans(
    {"（": "(", "）": ")", "，": ",", "｜": "|", "＠": "@", "＞": ">", "＝": "=", "！": "!", "％": "%"}
)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_TIMES: Final = re.compile(r"[xX](?=\d)")
# What looks like a profile, so that a wrong one gets a sentence about profiles.
_LIKE_A_PROFILE: Final = re.compile(r"(?:\d+[xX])?(\d+[gG]\.[0-9A-Za-z.+]+)", re.ASCII)
_UNIT: Final = re.compile(r"[A-Za-z]*")
_UNITS_MIB: Final = {"M": 1, "MI": 1, "MIB": 1, "MB": 1, "G": 1024, "GI": 1024, "GIB": 1024, "GB": 1024}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]*")
_SIZE: Final = re.compile(r">=\s*([1-9][0-9]{0,3})[Gg][Ii]?[Bb]?")
_INDEX: Final = re.compile(rf"(?:(?P<node>{_NODE_PATTERN})/)?cuda:(?P<index>[0-9]{{1,3}})(?![0-9])")


class RequestError(ValueError):
    """A request that cannot be read.

    `field` names the field that has `text`. `position` counts characters of `text` from 0; None means all of it.
    `said` is the problem as it was given: a sentence of the table of reasons, or a text. Texts are those of this
    package, from which the table imports: they speak of the grammar of a request, as a compiler does.
    """

    def __init__(
        self, text: str, *, problem: object, field: str = "gpu", position: int | None = None, example: str = EXAMPLES
    ) -> None:
        self.text = text
        self.field = field
        self.position = position
        self.said = problem
        self.problem = str(problem)
        self.example = example
        # As the sentence has them.
        self.shown, self.stated = _shown(text, most=_TEXT_SHOWN), _shown(self.problem, most=_PROBLEM_SHOWN)
        place = "" if position is None else f" at character {position + 1}"
        super().__init__(f'{field} "{self.shown}": {self.stated}{place}; write for example {example}')


def _shown(text: str, *, most: int) -> str:
    """As much of a text as a sentence has room for, with invisible characters escaped."""
    beginning = text[: most + 1]
    seen = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in beginning)
    return seen if len(seen) <= most else f"{seen[:most]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class GPURequest:
    """What one worker requests: `count` devices, each with a share and, if given, memory.

    - `count`: number of devices
    - `share_milli`: thousandths of each device's compute, 1000 for whole devices
    - `memory_mib`: MiB of each device; None leaves it to the memory guard (a share) or takes all (a whole device)
    - `memory_percent`: the same in percent of the memory of the device where it is placed; not with `memory_mib`
    - `models`: the allowed models; empty allows any
    - `excluded_models`: models that are not allowed, whatever `models` says
    - `vendor`: the required vendor; None allows any
    - `min_nominal_gb`: the smallest allowed nominal size of a device in GB; None allows any
    - `device_index`: the index of the device on its node; None allows any
    - `device_node`: the node of the device that `device_index` names; None allows any
    - `mig`: the profile of the MIG instances that are requested, each of them whole; empty requests GPUs
    """

    count: int = 1
    share_milli: int = WHOLE_MILLI
    memory_mib: int | None = None
    memory_percent: int | None = None
    models: tuple[str, ...] = ()
    excluded_models: tuple[str, ...] = ()
    vendor: str | None = None
    min_nominal_gb: int | None = None
    device_index: int | None = None
    device_node: str | None = None
    mig: str = ""

    @property
    def whole(self) -> bool:
        """Whether the devices are taken whole."""
        return self.share_milli == WHOLE_MILLI

    @property
    def may_be_partitioned_for(self) -> bool:
        """Whether devices that no node has now may come: GPUs are partitioned for the MIG profiles of waiting jobs."""
        return bool(self.mig)

    @property
    def names_memory(self) -> bool:
        """Whether it says how much memory it takes of each device."""
        return self.memory_mib is not None or self.memory_percent is not None

    @property
    def names_models(self) -> bool:
        """Whether only some models are allowed: by name, or by size."""
        return bool(self.models or self.excluded_models) or self.min_nominal_gb is not None

    def memory_on(self, total_mib: int) -> int | None:
        """Memory in MiB that it says it takes of a device with `total_mib`; None where it says nothing."""
        return self.memory_mib if self.memory_percent is None else percent_of(total_mib, percent=self.memory_percent)

    def admits(self, model: Model) -> bool:
        """Whether devices of this model, with its nominal size, are allowed. The vendor is not looked at."""
        return (
            (not self.models or any(normalise(name).admits(model) for name in self.models))
            and not any(normalise(name).admits(model) for name in self.excluded_models)
            and (model.memory_gb or 0) >= (self.min_nominal_gb or 0)
        )

    @property
    def total_milli(self) -> int:
        """Compute of all devices together, in thousandths of a GPU."""
        return mig.milli_of(self.mig, count=self.count) if self.mig else self.count * self.share_milli

    @property
    def device(self) -> str:
        """The device as the structured form names it: `cuda`, `cuda:1` or `a/cuda:1`."""
        index = "cuda" if self.device_index is None else f"cuda:{self.device_index}"
        return index if self.device_node is None else f"{self.device_node}/{index}"

    def __str__(self) -> str:
        amount = _print_amount(self)
        size = "" if self.min_nominal_gb is None else f">={self.min_nominal_gb}G"
        excluded = (f"!{name}" for name in self.excluded_models)
        selector = ",".join(filter(None, (self.vendor, "|".join(self.models), *excluded, size)))
        index = "" if self.device_index is None else f"@{self.device}"
        return amount + (f"({selector})" if selector else "") + index


def on_device(request: GPURequest, *, device: str) -> GPURequest:
    """The request on a device as the structured form names it; `cuda` leaves it as it is. Raises `RequestError`."""
    if device == "cuda":
        return request
    named = _INDEX.fullmatch(device)
    if named is None:
        raise RequestError(device, field="device", problem="no device", example="cuda, cuda:1 or NODE/cuda:1")
    return replace(request, device_index=int(named["index"]), device_node=named["node"])


def parse(text: str | int) -> GPURequest:
    """The request in a text. Raises `RequestError` with the place and a correct example."""
    written = str(text)
    check_length(written)
    return _read(written)


def check_length(text: str, *, field: str = "gpu", example: str = EXAMPLES) -> None:
    """Check that a text is no longer than a request can be. Raises `RequestError`."""
    if len(text) > MOST_CHARACTERS:
        problem = f"it has {len(text)} characters, and at most {MOST_CHARACTERS} are allowed"
        raise RequestError(text, field=field, problem=problem, example=example)


# Thousands of pods have a few requests, and each is read several times.
@lru_cache(maxsize=1024)
def _read(text: str) -> GPURequest:
    return _Reader(text).request()


def _print_amount(request: GPURequest) -> str:
    if request.mig:
        return request.mig if request.count == 1 else f"{request.count}x{request.mig}"
    if request.whole and not request.names_memory:
        return str(request.count)
    share = _print_share(request.share_milli)
    memory = f"{_print_memory(request)}," if request.names_memory else ""
    times = "" if request.count == 1 else f"{request.count}x"
    return f"{times}{memory}{share}"


def _print_share(share_milli: int) -> str:
    return "1" if share_milli == WHOLE_MILLI else f"0.{share_milli:03d}".rstrip("0")


def _print_memory(request: GPURequest) -> str:
    if request.memory_percent is not None:
        return f"{request.memory_percent}%"
    mib = request.memory_mib or 0
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


class _Reader:
    """Reads one text from left to right; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.original = text
        self.text = text.translate(_FULL_WIDTH)
        self.at = 0

    def request(self) -> GPURequest:
        self._skip_spaces()
        if self.at == len(self.text):
            raise self._error("empty request")
        request = self._selector(self._instances() or self._amount())
        if request.mig and replace(request, models=()) != GPURequest(count=request.count, mig=request.mig):
            raise self._error("the brackets of a MIG profile name models alone, such as 1g.10gb(H100)", at=0)
        request = self._index(request)
        self._skip_spaces()
        if self.at < len(self.text):
            raise self._error(f'unexpected "{self.text[self.at :]}"')
        return request

    def _instances(self) -> GPURequest | None:
        """`[COUNTx]PROFILE`; None where no MIG profile is named."""
        found = _LIKE_A_PROFILE.match(self.text, self.at)
        if found is None:
            return None
        profile = mig.normalised(found[1])
        if profile is None:
            raise self._error(
                f'"{found[1]}" is no MIG profile (allowed: 1g to 7g with the memory, such as 1g.10gb or 3g.40gb)',
                at=found.start(1),
            )
        count = self._count(self._number(), at=self.at) if found.start(1) > found.start() else 1
        self.at = found.end()
        return GPURequest(count=count, mig=profile)

    def _amount(self) -> GPURequest:
        start = self.at
        number = self._number()
        if _TIMES.match(self.text, self.at):
            self.at += 1
            count = self._count(number, at=start)
            return replace(self._share_part(), count=count)
        self.at = start
        request = self._share_part()
        if request.whole and not request.names_memory:
            return GPURequest(count=self._count(number, at=start))
        return request

    def _share_part(self) -> GPURequest:
        """`MEMORY,SHARE` or `SHARE`; a whole number without memory is read as a whole device."""
        start = self.at
        number = self._number()
        if (memory := self._memory(number, at=start)) is None:
            return GPURequest(share_milli=self._share(number, at=start, alone=True))
        self._skip_spaces()
        if not self._take(","):
            raise self._error("memory needs a share after a comma, such as 8G,0.5")
        self._skip_spaces()
        share_at = self.at
        return replace(memory, share_milli=self._share(self._number(), at=share_at, alone=False))

    def _memory(self, number: Fraction, *, at: int) -> GPURequest | None:
        """A request for the memory of which `number` was read; None where no unit follows."""
        if self._take("%"):
            if number.denominator != 1 or not 1 <= number <= _ALL_PERCENT:
                raise self._error("percent of memory must be a whole number from 1 to 100", at=at)
            return GPURequest(memory_percent=int(number))
        unit = _UNIT.match(self.text, self.at)
        if unit is None or not unit[0]:
            return None
        factor = _UNITS_MIB.get(unit[0].upper())
        if factor is None:
            raise self._error(f'unknown memory unit "{unit[0]}" (allowed: M, G, %)')
        self.at = unit.end()
        memory = number * factor
        if memory.denominator != 1 or memory < 1:
            raise self._error("memory must be a whole number of MiB, at least 1", at=at)
        if memory > MAX_MEMORY_MIB:
            raise self._error(f"memory may be {MAX_MEMORY_MIB} MiB at most", at=at)
        return GPURequest(memory_mib=int(memory))

    def _share(self, number: Fraction, *, at: int, alone: bool) -> int:
        if number <= 0:
            raise self._error("must be above 0", at=at)
        if number > 1:
            if alone and number.denominator == 1:
                return WHOLE_MILLI
            whole = "a number of GPUs above 1 must be whole" if alone else "a share must be at most 1"
            raise self._error(whole, at=at)
        milli = number * WHOLE_MILLI
        if milli.denominator != 1:
            raise self._error("a share has at most three decimals", at=at)
        return int(milli)

    def _count(self, number: Fraction, *, at: int) -> int:
        if number.denominator != 1 or not 1 <= number <= MAX_COUNT:
            raise self._error(f"the number of GPUs must be whole, from 1 to {MAX_COUNT}", at=at)
        return int(number)

    def _selector(self, request: GPURequest) -> GPURequest:
        self._skip_spaces()
        if not self._take("("):
            return request
        start = self.at
        end = self.text.find(")", start)
        if end < 0:
            raise self._error('a bracket is not closed: expected ")"', at=start - 1)
        parts = [part.strip() for part in self.text[start:end].split(",")]
        self.at = end + 1
        min_nominal_gb = self._size(parts.pop(), at=start) if parts[-1].startswith(">") else None
        if any(part.startswith(">") for part in parts):
            raise self._error("a size such as >=32G comes last in the brackets", at=start)
        vendor = parts.pop(0).lower() if parts and parts[0].lower() in VENDORS else None
        excluded: list[str] = []
        while parts and parts[-1].startswith("!"):
            excluded.insert(0, self._model(parts.pop()[1:], at=start))
        if len(parts) > 1:
            allowed = ", ".join(VENDORS)
            raise self._error(f'unknown vendor "{parts[0]}" (allowed: {allowed}; models are joined by |)', at=start)
        models = tuple(self._model(name, at=start) for name in parts[0].split("|")) if parts else ()
        return replace(
            request, vendor=vendor, models=models, excluded_models=tuple(excluded), min_nominal_gb=min_nominal_gb
        )

    def _model(self, text: str, *, at: int) -> str:
        name = text.strip()
        if name.startswith("!") or "|" in name:
            raise self._error("models that are excluded stand alone, after a comma each, such as 2(!T4,!P4)", at=at)
        if not _NAME.fullmatch(name):
            raise self._error(f'"{name}" is no model name', at=at)
        if len(name) > _LONGEST_NAME:
            raise self._error(f"a model's name has at most {_LONGEST_NAME} characters", at=at)
        return name

    def _size(self, text: str, *, at: int) -> int:
        """The GB of `>=32G`."""
        size = _SIZE.fullmatch(text)
        if size is None:
            raise self._error(f'"{text}" is no size: allowed are whole GB from >=1G to >={MAX_NOMINAL_GB}G', at=at)
        return int(size[1])

    def _index(self, request: GPURequest) -> GPURequest:
        self._skip_spaces()
        at = self.at
        if not self._take("@"):
            return request
        index = _INDEX.match(self.text, self.at)
        if index is None:
            raise self._error("expected a device such as @cuda:1 or @NODE/cuda:1", at=at)
        if request.mig:
            raise self._error("a MIG instance cannot be named by an index", at=at)
        if request.count != 1:
            raise self._error("a device index goes with one GPU only", at=at)
        self.at = index.end()
        return on_device(request, device=index[0])

    def _number(self) -> Fraction:
        match = _NUMBER.match(self.text, self.at)
        if match is None or not match[0].isascii():
            found = self.text[self.at : self.at + 1]
            raise self._error(f'expected a number, not "{found}"' if found else "expected a number")
        if len(match[0]) > _MOST_DIGITS:
            # Python refuses to read thousands of digits as a number.
            raise self._error(f"a number has at most {_MOST_DIGITS} digits")
        self.at = match.end()
        return Fraction(match[0])

    def _take(self, character: str) -> bool:
        if self.text.startswith(character, self.at):
            self.at += 1
            return True
        return False

    def _skip_spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _error(self, problem: str, *, at: int | None = None) -> RequestError:
        return RequestError(self.original, position=self.at if at is None else at, problem=problem)
