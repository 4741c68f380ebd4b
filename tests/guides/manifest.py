"""What is expected of each block, from manifest.toml, and the guides that it is about."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from tests.guides.blocks import Block, blocks_of

ROOT: Final = Path(__file__).resolve().parents[2]
_FILE: Final = Path(__file__).with_name("manifest.toml")
_DEFAULT: Final = ROOT.parent / "shared" / "seeds"
MOST_EXCEPTIONS: Final = 12
Run = Literal[
    "config", "curl", "device", "exception", "job", "pod", "python", "refusal", "request", "sample", "shell", "tree"
]
Place = Literal["local", "sandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A block of a guide, how it runs, and what is compared.

    - `guide`, `at`: the first three digits of the guide's file, and the block's number in it, from 0
    - `digest`: of the block's text
    - `run`: `curl` and `shell` as commands of a shell, `job` as the script of a job, `python` in one namespace with the
      guide's other Python, `pod` applied as the resources of a pod, `config` as the configuration, `request` as request
      texts, `device` as the device of a task each, `refusal` as a device that does not exist, `tree` with what the
      gateway prints at its start, `sample` with the answer of block `of`; an `exception` is not compared
    - `on`: where it runs, on the queue of one machine or on a sandbox
    - `answers`, `fields`: names and types of each JSON answer, or of a sample; `absent` are null in our answer
    - `values`: fields or expressions and their values; of `curl` a list, for each answer
    - `types`: expressions and their types
    - `prints`, `lines`, `log`, `keys`, `columns`: forms of what is printed by Python, by a job, to a job's log, as
      `key: value`, and as a table
    - `jobs`: what `gjob show` says of the jobs that it submits; `after` is how many jobs one waits for
    - `busy`: the GPUs of jobs that run meanwhile; `tasks`: devices of tasks that do
    - `holds`: its jobs run until it has ended
    - `given`: names that the guide takes for granted, from `given.py`
    - `requests`, `devices`, `gpus`, `prints_log`: what these runs expect
    """

    guide: str
    at: int
    digest: str
    run: Run
    on: tuple[Place, ...] = ()
    of: int | None = None
    sample_guide: str | None = None
    answers: tuple[Mapping[str, str], ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    values: Any = None
    types: Mapping[str, str] = field(default_factory=dict)
    prints: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    jobs: tuple[Mapping[str, Any], ...] = ()
    busy: tuple[int, ...] = ()
    tasks: tuple[str, ...] = ()
    holds: bool = False
    given: tuple[str, ...] = ()
    requests: tuple[Mapping[str, Any], ...] = ()
    devices: tuple[str, ...] = ()
    gpus: int = 0
    prints_log: bool = False

    @property
    def name(self) -> str:
        """The block as reports name it."""
        return f"{self.guide}.{self.at:02}"


@cache
def manifest() -> tuple[Expected, ...]:
    """Every block that is expected, in the order of the guides."""
    found: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        Expected(guide=guide, at=int(at), **{name: _frozen(value) for name, value in entry.items()})
        for guide, entries in found.items()
        for at, entry in entries.items()
    )


def those(place: Place, *runs: Run) -> pytest.MarkDecorator:
    """Each block that runs so at this place, as a test with the argument `block`."""
    here = [each for each in manifest() if each.run in runs and (not each.on or place in each.on)]
    return pytest.mark.parametrize("block", here, ids=lambda each: each.name)


def folder() -> Path:
    """The folder of the guides."""
    return Path(os.environ.get("DOVETAIL_GUIDES") or _DEFAULT)


@cache
def guides() -> Mapping[str, list[Block]]:
    """The blocks of each guide by the first three digits of its file's name; empty without the folder."""
    files = sorted(folder().glob("[0-9][0-9][0-9]_*.txt"))
    return {path.name[:3]: blocks_of(path.read_text(encoding="utf-8")) for path in files}


def text_of(expected: Expected) -> str:
    """The text of a block."""
    return guides()[expected.guide][expected.at].text


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
