"""Nodes, pods and arrivals from the text of files.

Reads no files; errors name the text `source`.

TraceError   an invalid line: file, line, column, value and what is allowed
"""

import csv
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape

NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
# The models that a pod may have, separated by bars. Some published lists have no such column: their pods take any.
MODELS_COLUMN: Final = "gpu_spec"
# In seconds, where a trace has them; empty where a pod was never scheduled or never left.
TIME_COLUMNS: Final = ("creation_time", "scheduled_time", "deletion_time")
MOST_DEVICES: Final = 64
_MOST: Final = 1 << 40
_SECONDS: Final = re.compile(r"[0-9]{1,15}(\.[0-9]+)?")


class TraceError(ValueError):
    """A text that is not a trace. `column` is empty where the whole line is wrong."""

    def __init__(self, *, source: str, line: int, column: str, value: str, allowed: str) -> None:
        where = f'{source}, line {line}, column "{column}"' if column else f"{source}, line {line}"
        super().__init__(f'{where}: "{value}": {allowed}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as a trace lists it."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as a trace lists it. `ran_seconds` is 0 for one without a recorded end."""

    name: str
    shape: Shape
    created_at: float = 0.0
    ran_seconds: float = 0.0


def parse_nodes(text: str, *, source: str) -> tuple[Node, ...]:
    """The nodes of a CSV with the columns of `NODE_COLUMNS`, in its order. Raises `TraceError`."""
    nodes: dict[str, Node] = {}
    for row in _rows(text, source=source, columns=NODE_COLUMNS):
        node = Node(
            name=row.name("sn", taken=nodes),
            cpu_milli=row.whole("cpu_milli", least=0),
            memory_mib=row.whole("memory_mib", least=0),
            gpus=row.whole("gpu", least=0, most=MOST_DEVICES),
            model=row.text("model"),
        )
        nodes[node.name] = node
    if not nodes:
        raise TraceError(source=source, line=2, column="", value="", allowed="expected at least one node")
    return tuple(nodes.values())


def parse_pods(text: str, *, source: str) -> dict[str, Shape]:
    """The request of each pod, by its name, from a CSV with the columns of `POD_COLUMNS`.

    `MODELS_COLUMN` counts where the CSV has it. Raises `TraceError`.
    """
    return {name: shape for name, shape, _ in _pods(text, source=source)}


def parse_timed_pods(text: str, *, source: str) -> list[Pod]:
    """The pods of such a CSV in the order of arrival, with its `TIME_COLUMNS`.

    Raises `TraceError`.
    """
    pods = []
    for name, shape, row in _pods(text, source=source):
        created, began, ended = (row.seconds(column) for column in TIME_COLUMNS)
        started = began if began is not None else created or 0.0
        ran = 0.0 if ended is None else max(0.0, ended - started)
        pods.append(Pod(name=name, shape=shape, created_at=created or 0.0, ran_seconds=ran))
    return sorted(pods, key=lambda pod: pod.created_at)


def _pods(text: str, *, source: str) -> Iterator[tuple[str, Shape, "_Row"]]:
    seen: set[str] = set()
    for row in _rows(text, source=source, columns=POD_COLUMNS, optional=[MODELS_COLUMN]):
        gpus = row.whole("num_gpu", least=0, most=MOST_DEVICES)
        lowest, highest = (0, WHOLE_MILLI) if gpus == 0 else (1 if gpus == 1 else WHOLE_MILLI, WHOLE_MILLI)
        share_milli = row.whole("gpu_milli", least=lowest, most=highest)
        shape = Shape(
            cpu_milli=row.whole("cpu_milli", least=0),
            memory_mib=row.whole("memory_mib", least=0),
            gpus=gpus,
            share_milli=share_milli if gpus else 0,
            models=tuple(sorted({part.strip() for part in row.text(MODELS_COLUMN).split("|")} - {""})),
        )
        name = row.name("name", taken=seen)
        seen.add(name)
        yield name, shape, row
    if not seen:
        raise TraceError(source=source, line=2, column="", value="", allowed="expected at least one pod")


def parse_arrivals(text: str, *, source: str, pods: Mapping[str, Shape]) -> list[Shape]:
    """The shapes of arriving pods, from one name per line. Raises `TraceError`."""
    arriving = [pods[name] for name in _names(text, source=source, known=pods, kind="pod of the pod table")]
    if not any(shape.gpus for shape in arriving):
        raise TraceError(source=source, line=1, column="", value="", allowed="expected a pod that asks for a GPU")
    return arriving


def parse_order(text: str, *, source: str, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes in a static order, one name per line, each exactly once. Raises `TraceError`."""
    known = {node.name: node for node in nodes}
    ordered: dict[str, Node] = {}
    for line, name in enumerate(_names(text, source=source, known=known, kind="node of the node table"), start=1):
        if name in ordered:
            raise TraceError(source=source, line=line, column="", value=name, allowed="expected each node once")
        ordered[name] = known[name]
    missing = next((name for name in known if name not in ordered), None)
    if missing is not None:
        raise TraceError(
            source=source, line=len(ordered) + 1, column="", value="", allowed=f"expected the node {missing}, too"
        )
    return tuple(ordered.values())


def columns_of(nodes: Sequence[Node]) -> Columns:
    """Empty nodes as columns, in their order."""
    return Columns(
        cpu_milli=[node.cpu_milli for node in nodes],
        memory_mib=[node.memory_mib for node in nodes],
        gpus=[node.gpus for node in nodes],
        models=[node.model for node in nodes],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One line of a CSV, with its position."""

    source: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def name(self, column: str, *, taken: Container[str]) -> str:
        value = self.text(column)
        if not value or value in taken:
            raise self._error(column, allowed="expected a name that no other line has")
        return value

    def whole(self, column: str, *, least: int, most: int = _MOST) -> int:
        value = self.text(column)
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
        if number is None or not least <= number <= most:
            top = "or more" if most == _MOST else f"to {most}"
            raise self._error(
                column, allowed=f"expected {most}" if least == most else f"expected a whole number, {least} {top}"
            )
        return number

    def seconds(self, column: str) -> float | None:
        """None where the table has no such column, or the cell is empty."""
        value = (self.cells.get(column) or "").strip()
        if not value:
            return None
        if not _SECONDS.fullmatch(value):
            raise self._error(column, allowed="expected seconds, such as 427061, or nothing")
        return float(value)

    def _error(self, column: str, *, allowed: str) -> TraceError:
        return TraceError(source=self.source, line=self.line, column=column, value=self.text(column), allowed=allowed)


def _rows(text: str, *, source: str, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[_Row]:
    reader = csv.DictReader(text.splitlines())
    header = _header(reader, source=source)
    if not header:
        raise TraceError(source=source, line=1, column="", value="", allowed=f"expected {', '.join(columns)}")
    missing = [column for column in columns if column not in header]
    if missing:
        raise TraceError(
            source=source,
            line=1,
            column="",
            value=",".join(header),
            allowed=f"the column {missing[0]} is missing, expected {', '.join(columns)}",
        )
    filled = [*columns, *(column for column in optional if column in header)]
    for cells in _cells(reader, source=source):
        short = next((column for column in filled if cells[column] is None), None)
        if short is not None:
            raise TraceError(
                source=source,
                line=reader.line_num,
                column=short,
                value="",
                allowed=f"the line ends before it, expected {len(header)} values",
            )
        yield _Row(source=source, line=reader.line_num, cells=cells)


def _cells(reader: "csv.DictReader[str]", *, source: str) -> Iterator[dict[str, str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise _no_csv(error, source=source, line=reader.line_num + 1) from error


def _header(reader: "csv.DictReader[str]", *, source: str) -> Sequence[str]:
    try:
        return reader.fieldnames or ()
    except csv.Error as error:
        raise _no_csv(error, source=source, line=1) from error


def _no_csv(error: csv.Error, *, source: str, line: int) -> TraceError:
    return TraceError(source=source, line=line, column="", value="", allowed=f"expected a line of a CSV ({error})")


def _names(text: str, *, source: str, known: Mapping[str, object], kind: str) -> Iterator[str]:
    for line, raw in enumerate(text.splitlines(), start=1):
        name = raw.strip()
        if not name:
            continue
        if name not in known:
            raise TraceError(source=source, line=line, column="", value=name, allowed=f"expected a {kind}")
        yield name
