"""The tables of samples. Statements only.

They hold rows whose keys are times of the clock, so that two gateways write the same ones: the first counts.

A module of its own: the format of the database, as the operator's `history.schema` is for its own.
"""

from typing import Final

import sqlalchemy as sql

from dovetail_gateway.samples.usage import MOST_OF_A_USER

METADATA: Final = sql.MetaData()
_NAME: Final = sql.String(253)

# The samples of all subjects of a kind at one step of time. Seconds since 1970.
SAMPLES: Final = sql.Table(
    "dovetail_samples",
    METADATA,
    sql.Column("kind", sql.String(16), primary_key=True),
    sql.Column("tier", sql.Integer, primary_key=True),
    sql.Column("at", sql.BigInteger, primary_key=True),
    sql.Column("layout", sql.String(32), nullable=False),
    sql.Column("data", sql.LargeBinary, nullable=False),
)
# Which subjects a row of samples has, by the digest of their list: it is the same for days.
LAYOUTS: Final = sql.Table(
    "dovetail_sample_layouts",
    METADATA,
    sql.Column("layout", sql.String(32), primary_key=True),
    sql.Column("subjects", sql.LargeBinary, nullable=False),
)
# Where a device was last, by UUID.
PLACES: Final = sql.Table(
    "dovetail_sample_places",
    METADATA,
    sql.Column("uuid", sql.String(128), primary_key=True),
    sql.Column("node", _NAME, nullable=False),
    sql.Column("position", sql.Integer, nullable=False),
    sql.Column("model", _NAME, nullable=False),
    sql.Column("gpus", sql.Float, nullable=False),
    sql.Column("memory_mib", sql.Integer, nullable=False),
)
CURVES: Final = sql.Table(
    "dovetail_sample_jobs",
    METADATA,
    sql.Column("uid", sql.String(64), primary_key=True),
    sql.Column("namespace", sql.String(63), nullable=False),
    sql.Column("name", _NAME, nullable=False),
    sql.Column("until", sql.BigInteger, nullable=False),
    sql.Column("data", sql.LargeBinary, nullable=False),
    sql.Index("dovetail_sample_jobs_by_name", "namespace", "name"),
    sql.Index("dovetail_sample_jobs_by_end", "until"),
)
MARKS: Final = sql.Table(
    "dovetail_sample_marks",
    METADATA,
    sql.Column("at", sql.BigInteger, primary_key=True),
    sql.Column("uid", sql.String(64), primary_key=True),
    sql.Column("kind", sql.String(16), primary_key=True),
    sql.Column("namespace", sql.String(63), nullable=False),
    sql.Column("name", _NAME, nullable=False),
    sql.Column("number", sql.Integer),
    sql.Column("nodes", sql.Text, nullable=False),
)
USAGE: Final = sql.Table(
    "dovetail_usage",
    METADATA,
    sql.Column("day", sql.String(10), primary_key=True),
    sql.Column("namespace", sql.String(63), primary_key=True),
    sql.Column("project", sql.String(63), primary_key=True),
    sql.Column("user", sql.String(MOST_OF_A_USER), primary_key=True),
    sql.Column("model", _NAME, primary_key=True),
    sql.Column("gpu_seconds", sql.Float, nullable=False),
    sql.Column("used_seconds", sql.Float, nullable=False),
)
