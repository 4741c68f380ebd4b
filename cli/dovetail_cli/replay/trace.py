"""Pods out of a trace's CSV file, as Alibaba's cluster-trace-gpu-v2023 has them. Values only; the file is read whole.

Columns: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec (models separated by |), creation_time,
deletion_time, scheduled_time (seconds; the last two may be empty). Others are not read.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail_cli.errors import MissingError, UsageError

COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time",
    "scheduled_time",
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
_NUMBER: Final = re.compile(r"\d{1,15}(\.\d+)?")
_LARGEST: Final = {"num_gpu": 9999, "gpu_milli": 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePod:
    """One pod of the trace. `gpu_milli` is the share of each of its `gpus` devices; times are in seconds."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]
    created_at: float
    ran_seconds: float


def read_pods(path: Path, *, limit: int | None = None) -> list[TracePod]:
    """The first `limit` pods in the order of their arrival.

    Raises `UsageError` with file, line, column and value for a row that cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            _check_columns(reader.fieldnames or (), path=path)
            pods = [_pod(row, at=f"{path}, line {reader.line_num}") for row in reader]
    except OSError as error:
        raise MissingError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV file: {error}") from error
    if not pods:
        raise UsageError(f"{path} has no pods")
    _check_unique(pods, path=path)
    return sorted(pods, key=lambda pod: pod.created_at)[:limit]


def _check_columns(found: Iterable[str], *, path: Path) -> None:
    names = set(found)
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise UsageError(f"{path}, line 1: the column {missing[0]} is missing; needed are {', '.join(COLUMNS)}")


def _check_unique(pods: list[TracePod], *, path: Path) -> None:
    seen: set[str] = set()
    for pod in pods:
        if pod.name in seen:
            raise UsageError(f'{path}: column name: "{pod.name}" is there twice')
        seen.add(pod.name)


def _pod(row: Mapping[str, str | None], *, at: str) -> TracePod:
    gpus = _whole(row, "num_gpu", at=at)
    gpu_milli = _whole(row, "gpu_milli", at=at)
    if gpus and not gpu_milli:
        raise UsageError(f'{at}, column gpu_milli: "{row["gpu_milli"]}": a pod with {gpus} GPUs needs 1 to 1000')
    created = _seconds(row, "creation_time", at=at) or 0.0
    ended = _seconds(row, "deletion_time", at=at)
    began = _seconds(row, "scheduled_time", at=at)
    return TracePod(
        name=_name(row, at=at),
        cpu_milli=_whole(row, "cpu_milli", at=at),
        memory_mib=_whole(row, "memory_mib", at=at),
        gpus=gpus,
        gpu_milli=gpu_milli,
        models=tuple(model.strip() for model in (row["gpu_spec"] or "").split("|") if model.strip()),
        created_at=created,
        # A pod that was never scheduled or is still there has run for no known time: the floor is its run time.
        ran_seconds=max(0.0, ended - (created if began is None else began)) if ended is not None else 0.0,
    )


def _name(row: Mapping[str, str | None], *, at: str) -> str:
    name = row["name"] or ""
    if not _NAME.fullmatch(name):
        raise UsageError(f'{at}, column name: "{name}": up to 52 lower-case letters, digits and hyphens')
    return name


def _whole(row: Mapping[str, str | None], column: str, *, at: str) -> int:
    text = row[column] or ""
    largest = _LARGEST.get(column, 10**9)
    if not (text.isascii() and text.isdigit() and int(text) <= largest):
        raise UsageError(f'{at}, column {column}: "{text}": a whole number from 0 to {largest}')
    return int(text)


def _seconds(row: Mapping[str, str | None], column: str, *, at: str) -> float | None:
    text = row[column] or ""
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise UsageError(f'{at}, column {column}: "{text}": seconds, such as 427061, or nothing')
    return float(text)
