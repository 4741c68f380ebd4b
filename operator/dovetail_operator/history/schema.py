"""The table of records, and its migration from earlier versions. Statements only."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import sqlalchemy as sql

from dovetail.api.historyquery import JobRecord
from dovetail.decoding import Decoder, UnreadableError

METADATA: Final = sql.MetaData()
# The name of a service account alone may be longer; the record has all of it.
USER_LENGTH: Final = 253
# Times are sortable text in UTC. The whole record is JSON, with columns for what is searched or summed.
JOBS: Final = sql.Table(
    "dovetail_jobs",
    METADATA,
    sql.Column("uid", sql.String(64), primary_key=True),
    sql.Column("namespace", sql.String(63), nullable=False),
    sql.Column("name", sql.String(253), nullable=False),
    sql.Column("number", sql.Integer),
    sql.Column("user", sql.String(USER_LENGTH), nullable=False),
    sql.Column("phase", sql.String(32), nullable=False),
    sql.Column("ended", sql.String(32)),
    sql.Column("gpu_seconds", sql.Float, nullable=False),
    sql.Column("record", sql.Text, nullable=False),
    sql.Column("log", sql.Text, nullable=False, server_default=""),
    # Added later: rows of an earlier operator have NULL in all of them until they are filled. Rows whose record cannot
    # be read keep it. `whole_user` is not shortened.
    sql.Column("whole_user", sql.Text),
    sql.Column("project", sql.String(63)),
    sql.Column("run_seconds", sql.Float),
    sql.Column("wait_seconds", sql.Float),
    sql.Column("peak_mib", sql.BigInteger),
    sql.Column("mean_utilization", sql.Float),
    sql.Index("dovetail_jobs_by_end", "namespace", "ended"),
)
_ADDED: Final = ("whole_user", "project", "run_seconds", "wait_seconds", "peak_mib", "mean_utilization")
# Everything that sums need. SQLite stores a row's columns in the order in which they were added. Reading a column after
# `record` and `log` means reading these too, which may be tens of kilobytes. PostgreSQL stores long texts separately.
_SUMS: Final = sql.Index(
    "dovetail_jobs_for_sums",
    *(JOBS.c[name] for name in ("namespace", "ended", "phase", "user", "name", "gpu_seconds", *_ADDED)),
).ddl_if(dialect="sqlite")
# The few rows of an earlier operator: searching for them at each start must not read the whole table.
_IS_UNFILLED: Final = JOBS.c.whole_user.is_(None)
_UNFILLED: Final = sql.Index(
    "dovetail_jobs_unfilled", JOBS.c.uid, sqlite_where=_IS_UNFILLED, postgresql_where=_IS_UNFILLED
)
_CHUNK: Final = 500
_DECODER: Final = Decoder(JobRecord)


def prepare(engine: sql.Engine) -> None:
    """Create the table, or add and fill its missing columns. Raises SQLAlchemy's errors."""
    METADATA.create_all(engine)
    there = {column["name"] for column in sql.inspect(engine).get_columns(JOBS.name)}
    missing = [name for name in _ADDED if name not in there]
    with engine.begin() as connection:
        for name in missing:
            kind = JOBS.c[name].type.compile(engine.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {JOBS.name} ADD COLUMN {name} {kind}")
    _UNFILLED.create(engine, checkfirst=True)
    # Also without a missing column: an operator of an earlier version may have written since.
    after = ""
    while rows := _unfilled(engine, after=after):
        with engine.begin() as connection:
            for values in _filled(rows):
                connection.execute(sql.update(JOBS).where(JOBS.c.uid == sql.bindparam("row")), values)
        after = rows[-1].uid
    if engine.dialect.name == "sqlite":
        _SUMS.create(engine, checkfirst=True)


def summed_columns(record: JobRecord) -> dict[str, Any]:
    """The columns of a record that are summed."""
    return {
        "whole_user": record.user,
        "project": record.project[:63],
        "run_seconds": record.run_seconds,
        "wait_seconds": record.wait_seconds,
        "peak_mib": record.peak_mib,
        "mean_utilization": record.mean_utilization,
    }


def _unfilled(engine: sql.Engine, *, after: str) -> list[sql.Row[Any]]:
    wanted = sql.select(JOBS.c.uid, JOBS.c.record).where(_IS_UNFILLED, JOBS.c.uid > after)
    with engine.connect() as connection:
        return list(connection.execute(wanted.order_by(JOBS.c.uid).limit(_CHUNK)))


def _filled(rows: list[sql.Row[Any]]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        try:
            record = _DECODER.decode(row.record)
        except UnreadableError:
            # No sum counts it, and no answer contains it.
            continue
        yield {"row": row.uid, **summed_columns(record)}
