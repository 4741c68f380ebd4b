"""Sums over records, computed by the database.

Statements only, equal for SQLite and PostgreSQL.

At most `most` + 1 sums are returned, whatever the number of records and groups: the groups with the most GPU seconds,
equal ones by name, and one sum for all others.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sql
from msgspec.structs import replace

from dovetail.api.historyquery import MOST_GROUPS, OTHERS, Grouping, HistorySums
from dovetail_operator.history.schema import JOBS

Conditions = Sequence[sql.ColumnElement[bool]]
# The label of records whose group is not among the largest. No group has this name: names and users contain no control
# characters, and PostgreSQL accepts this one, unlike NUL.
_REST: Final = "\x01others"


class _Grouped(NamedTuple):
    """The selected records, each with its group's name or `_REST`."""

    rows: sql.CTE

    def select(self, *columns: Any) -> sql.Select[Any]:
        return sql.select(self.rows.c.label, *columns)


def sums(
    connection: sql.Connection, *, conditions: Conditions, by: Grouping, most: int = MOST_GROUPS
) -> list[HistorySums]:
    """The sums by group, the most GPU seconds first, the sum of all others last."""
    group = _group(by)
    largest = connection.execute(_largest(conditions, group=group, most=most)).scalars().all()
    grouped = _grouped(conditions, group=group, largest=largest if len(largest) == most else None)
    phases: dict[str, dict[str, int]] = {}
    for row in connection.execute(_phases(grouped)):
        phases.setdefault(row.label, {})[row.phase] = row.jobs
    waits = {row.label: row for row in connection.execute(_waits(grouped))}
    found = [
        _sums(row, phases=phases.get(row.label, {}), waits=waits.get(row.label))
        for row in connection.execute(_totals(grouped))
    ]
    ordered = sorted(found, key=lambda each: (each.group == _REST, -each.gpu_seconds, each.group))
    return [replace(each, group=OTHERS) if each.group == _REST else each for each in ordered]


def _group(by: Grouping) -> sql.ColumnElement[str]:
    match by:
        case "User":
            return JOBS.c.user
        case "Name":
            return JOBS.c.name
        case "Project":
            return JOBS.c.project
        case "Day":
            return sql.func.substr(JOBS.c.ended, 1, 10)
        case _:
            return sql.literal("")


def _largest(conditions: Conditions, *, group: sql.ColumnElement[str], most: int) -> sql.Select[Any]:
    name, seconds = group.label("of_group"), sql.func.sum(JOBS.c.gpu_seconds)
    return sql.select(name).where(*conditions).group_by(name).order_by(seconds.desc(), name).limit(most)


def _grouped(conditions: Conditions, *, group: sql.ColumnElement[str], largest: Sequence[str] | None) -> _Grouped:
    """Each record with its group's name, or `_REST` if it is not in `largest`.

    None: all groups are.
    """
    # A list of names instead of a join with the previous statement: both databases use an index for it.
    label = group if largest is None else sql.case((group.in_(largest), group), else_=_REST)
    numbers = (JOBS.c.phase, JOBS.c.gpu_seconds, JOBS.c.run_seconds, JOBS.c.wait_seconds, JOBS.c.peak_mib)
    rows = sql.select(label.label("label"), *numbers, JOBS.c.mean_utilization).where(*conditions)
    return _Grouped(rows.cte("grouped"))


def _totals(grouped: _Grouped) -> sql.Select[Any]:
    rows = grouped.rows.c
    measured = sql.and_(rows.mean_utilization.is_not(None), rows.gpu_seconds > 0)
    return grouped.select(
        sql.func.count().label("jobs"),
        sql.func.sum(rows.gpu_seconds).label("gpu_seconds"),
        sql.func.sum(rows.run_seconds).label("run_seconds"),
        sql.func.avg(rows.wait_seconds).label("mean_wait"),
        sql.func.max(rows.peak_mib).label("peak_mib"),
        sql.func.sum(sql.case((measured, rows.mean_utilization * rows.gpu_seconds))).label("used"),
        sql.func.sum(sql.case((measured, rows.gpu_seconds))).label("weight"),
    ).group_by(rows.label)


def _phases(grouped: _Grouped) -> sql.Select[Any]:
    rows = grouped.rows.c
    counted = grouped.select(rows.phase, sql.func.count().label("jobs"))
    return counted.group_by(rows.label, rows.phase).order_by(rows.label, rows.phase)


def _waits(grouped: _Grouped) -> sql.Select[Any]:
    """Median and 95th percentile of the waits in seconds.

    The median is the mean of the middle one or two. The percentile is the first wait that at least 95 % do not exceed.
    """
    rows = grouped.rows.c
    place = sql.func.row_number().over(partition_by=rows.label, order_by=rows.wait_seconds)
    count = sql.func.count().over(partition_by=rows.label)
    placed = grouped.select(rows.wait_seconds.label("wait"), place.label("place"), count.label("count"))
    each = placed.where(rows.wait_seconds.is_not(None)).cte("waits").c
    middle = sql.or_(each.place == (each.count + 1) // 2, each.place == (each.count + 2) // 2)
    # The smallest value that at least 95 % do not exceed.
    enough = each.place == (95 * each.count + 99) // 100
    return sql.select(
        each.label,
        sql.func.avg(sql.case((middle, each.wait))).label("median"),
        sql.func.min(sql.case((enough, each.wait))).label("p95"),
    ).group_by(each.label)


def _sums(row: sql.Row[Any], *, phases: dict[str, int], waits: sql.Row[Any] | None) -> HistorySums:
    return HistorySums(
        group=row.label,
        jobs=row.jobs,
        by_phase=phases,
        gpu_seconds=row.gpu_seconds,
        run_seconds=row.run_seconds,
        mean_wait_seconds=row.mean_wait,
        median_wait_seconds=waits.median if waits else None,
        p95_wait_seconds=waits.p95 if waits else None,
        peak_mib=row.peak_mib or 0,
        mean_utilization=row.used / row.weight if row.weight else None,
    )
