"""The table of records. Statements only.

SchemaError   a table of that name has other columns
"""

from typing import Any, Final

import sqlalchemy as sql

from dovetail.api.historyquery import JobRecord

METADATA: Final = sql.MetaData()
# Times are sortable text in UTC. The whole record is JSON, with columns for what is searched or summed.
JOBS: Final = sql.Table(
    "dovetail_jobs",
    METADATA,
    sql.Column("uid", sql.String(64), primary_key=True),
    sql.Column("namespace", sql.String(63), nullable=False),
    sql.Column("name", sql.String(253), nullable=False),
    sql.Column("number", sql.Integer),
    sql.Column("user", sql.Text, nullable=False),
    sql.Column("project", sql.String(63), nullable=False),
    sql.Column("phase", sql.String(32), nullable=False),
    sql.Column("ended", sql.String(32)),
    sql.Column("gpu_seconds", sql.Float, nullable=False),
    sql.Column("run_seconds", sql.Float),
    sql.Column("wait_seconds", sql.Float),
    sql.Column("peak_mib", sql.BigInteger),
    sql.Column("mean_utilization", sql.Float),
    sql.Column("record", sql.Text, nullable=False),
    sql.Column("log", sql.Text, nullable=False, server_default=""),
    sql.Index("dovetail_jobs_by_end", "namespace", "ended"),
)
_SUMMED: Final = ("gpu_seconds", "run_seconds", "wait_seconds", "peak_mib", "mean_utilization")
# Everything that sums need: a row of SQLite contains its record and its log, tens of kilobytes, and reading the rows
# would read these too. PostgreSQL stores long texts separately.
_SUMS: Final = sql.Index(
    "dovetail_jobs_for_sums",
    *(JOBS.c[name] for name in ("namespace", "ended", "phase", "user", "project", "name", *_SUMMED)),
).ddl_if(dialect="sqlite")


class SchemaError(Exception):
    """The database has a table of that name with other columns; the message says what to type."""


def prepare(engine: sql.Engine) -> None:
    """Create the table if it is missing. Raises `SchemaError` and SQLAlchemy's errors."""
    METADATA.create_all(engine)
    there = {column["name"] for column in sql.inspect(engine).get_columns(JOBS.name)}
    if there != set(JOBS.c.keys()):
        raise SchemaError(
            f"the table {JOBS.name} is of another version of Dovetail, and was left as it is. Set it aside: "
            f"ALTER TABLE {JOBS.name} RENAME TO {JOBS.name}_before; DROP INDEX IF EXISTS dovetail_jobs_by_end; "
            "DROP INDEX IF EXISTS dovetail_jobs_for_sums"
        )


def summed_columns(record: JobRecord) -> dict[str, Any]:
    """The columns of a record that are summed."""
    return {name: getattr(record, name) for name in _SUMMED}
