"""Stores records of jobs in a SQLite file or in PostgreSQL.

Every call blocks: call it in a thread.

SQLAlchemy's Core makes the same statements valid for both, and brings the pool and the reconnects that PostgreSQL
needs. A record's key is its job's UID. It is final once it has an end, and further writes change nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import sqlalchemy as sql

from dovetail.api.historyquery import MOST_GROUPS, MOST_LOGS, HistoryQuerySpec, HistorySums, JobRecord
from dovetail.decoding import UnreadableError, decode
from dovetail.logs import get_logger
from dovetail.process import database_url
from dovetail.process.database_url import DatabaseURLError
from dovetail_operator.history import aggregates
from dovetail_operator.history.schema import JOBS, SchemaError, prepare, summed_columns

log = get_logger("dovetail.operator.history")

_CHUNK: Final = 500
_MOST_WORDS: Final = 300
# An operator that ends waits at most this long for readers of its database.
_CLOSING_MILLISECONDS: Final = 1_000
_UTC: Final = "%Y-%m-%dT%H:%M:%SZ"
UsedBy = Mapping[tuple[str, str], float]


class HistoryError(Exception):
    """The store cannot be used. The message names it without its password."""

    def __init__(self, where: str, *, problem: str) -> None:
        super().__init__(f"history {where}: {problem}")


class HistoryStore:
    """The records in one database."""

    def __init__(self, url: str) -> None:
        """Raises `HistoryError` for an invalid URL or a missing driver."""
        try:
            self._url = parsed = database_url.parse(url)
            self.where = database_url.shown(parsed)
            self._file = Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
            connect_args = {"timeout": database_url.LOCK_SECONDS} if self._file else database_url.connect_args(parsed)
            self._engine = sql.create_engine(parsed, pool_pre_ping=True, connect_args=connect_args)
        except DatabaseURLError as error:
            raise HistoryError(error.where, problem=error.problem) from error
        except (sql.exc.ArgumentError, ModuleNotFoundError) as error:
            raise HistoryError("url", problem=str(error)) from error
        self._opened: tuple[int, int] | None = None
        self._upsert_row = _upsert_statement(database_url.insert_of(parsed)(JOBS))

    def open(self) -> None:
        """Create the table if it is missing. May be called repeatedly. Raises `HistoryError`."""
        try:
            if self._file is not None:
                # The open file may have been deleted or replaced.
                self._engine.dispose()
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._engine.connect() as connection:
                    # Readers do not wait for the writer, and a crash loses nothing that was committed.
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            prepare(self._engine)
            self._opened = self._file_there()
        except SchemaError as error:
            raise HistoryError(self.where, problem=str(error)) from error
        except (OSError, sql.exc.SQLAlchemyError) as error:
            raise HistoryError(self.where, problem=self._problem(error)) from error

    def close(self) -> None:
        """Close all connections. SQLite's one file then has all records, also while others have it open."""
        if self._opened is not None and self._file_there() == self._opened:
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql(f"PRAGMA busy_timeout = {_CLOSING_MILLISECONDS}")
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            except sql.exc.SQLAlchemyError as error:
                log.warning("the last records are in history.db-wal", file=self.where, error=self._problem(error))
        self._engine.dispose()

    def write(self, records: Iterable[JobRecord]) -> list[JobRecord]:
        """Write records, except over final ones. Returns the records that are final now.

        Raises `HistoryError`.
        """
        records = list(records)
        if self._file_there() != self._opened:
            log.warning("the history's file was deleted or replaced, and is opened again", file=self.where)
            self.open()
        try:
            with self._engine.begin() as connection:
                return [record for record in records if self._upsert(connection, record=record) and record.ended]
        except sql.exc.SQLAlchemyError as error:
            raise HistoryError(self.where, problem=self._problem(error)) from error

    def _file_there(self) -> tuple[int, int] | None:
        """The identity of the file under our name; None without a file, and for PostgreSQL."""
        try:
            found = None if self._file is None else self._file.stat()
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def _upsert(self, connection: sql.Connection, *, record: JobRecord) -> bool:
        return connection.execute(self._upsert_row, _row(record)).first() is not None

    def final(self, uids: Sequence[str]) -> set[str]:
        """Which of these jobs have a final record."""
        found: set[str] = set()
        for start in range(0, len(uids), _CHUNK):
            chosen = JOBS.c.uid.in_(uids[start : start + _CHUNK]) & JOBS.c.ended.is_not(None)
            found |= {row.uid for row in self._read(sql.select(JOBS.c.uid).where(chosen))}
        return found

    def unfinished(self) -> list[JobRecord]:
        """Records of jobs that have begun and have no known end."""
        return _records(self._read(sql.select(JOBS.c.uid, JOBS.c.record).where(JOBS.c.ended.is_(None))))

    def find(self, namespace: str, *, question: HistoryQuerySpec) -> tuple[list[JobRecord], str]:
        """A page of records, the latest end first, and where the next begins ("" after the last)."""
        limit = min(question.limit, MOST_LOGS) if question.logs else question.limit
        logs = (JOBS.c.log,) if question.logs else ()
        conditions = _conditions(namespace, question=question)
        wanted = sql.select(JOBS.c.uid, JOBS.c.ended, JOBS.c.record, *logs).where(*conditions, *_after(question.after))
        rows = self._read(wanted.order_by(JOBS.c.ended.desc(), JOBS.c.uid).limit(limit + 1))
        last = rows[limit - 1] if len(rows) > limit else None
        return _records(rows[:limit]), "" if last is None else f"{last.ended} {last.uid}"

    def sums(self, namespace: str, *, question: HistoryQuerySpec, most: int = MOST_GROUPS) -> list[HistorySums]:
        """Sum up the selected records, for the `most` largest groups and all others."""
        # One snapshot for all statements, so that the numbers belong together.
        level = "SERIALIZABLE" if self._file else "REPEATABLE READ"
        try:
            with self._engine.connect().execution_options(isolation_level=level) as connection:
                if self._file:
                    connection.exec_driver_sql("BEGIN")
                return aggregates.sums(
                    connection,
                    conditions=_conditions(namespace, question=question),
                    by=question.group_by or "Nothing",
                    most=most,
                )
        except sql.exc.SQLAlchemyError as error:
            raise HistoryError(self.where, problem=self._problem(error)) from error

    def used(self) -> UsedBy:
        """GPU seconds of all records by namespace and user."""
        summed = sql.select(JOBS.c.namespace, JOBS.c.user, sql.func.sum(JOBS.c.gpu_seconds).label("seconds"))
        rows = self._read(summed.where(JOBS.c.ended.is_not(None)).group_by(JOBS.c.namespace, JOBS.c.user))
        return MappingProxyType({(row.namespace, row.user): float(row.seconds) for row in rows})

    def forget(self, *, before: datetime) -> int:
        """Delete the records of jobs that ended before that time. Returns their number."""
        try:
            with self._engine.begin() as connection:
                old = JOBS.c.ended < before.strftime(_UTC)
                return connection.execute(sql.delete(JOBS).where(old)).rowcount
        except sql.exc.SQLAlchemyError as error:
            raise HistoryError(self.where, problem=self._problem(error)) from error

    def _problem(self, error: Exception) -> str:
        """The error in a few words, without the URL's secrets."""
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        return database_url.without_secrets(text, url=self._url)[:_MOST_WORDS]

    def _read(self, statement: sql.Select[Any]) -> Sequence[sql.Row[Any]]:
        try:
            with self._engine.connect() as connection:
                return connection.execute(statement).all()
        except sql.exc.SQLAlchemyError as error:
            raise HistoryError(self.where, problem=self._problem(error)) from error


def _conditions(namespace: str, *, question: HistoryQuerySpec) -> list[sql.ColumnElement[bool]]:
    found: list[sql.ColumnElement[bool]] = [JOBS.c.namespace == namespace, JOBS.c.ended.is_not(None)]
    if question.since:
        found.append(JOBS.c.ended >= _utc(question.since))
    if question.until:
        found.append(JOBS.c.ended < _utc(question.until))
    if question.names or question.numbers:
        found.append(sql.or_(JOBS.c.name.in_(question.names), JOBS.c.number.in_(question.numbers)))
    for column, wanted in (
        (JOBS.c.user, question.users),
        (JOBS.c.phase, question.phases),
        (JOBS.c.project, question.projects),
    ):
        if wanted:
            found.append(column.in_(wanted))
    return found


def _after(place: str) -> list[sql.ColumnElement[bool]]:
    """The condition for records after that place, in the order of the pages."""
    if not place:
        return []
    ended, _, uid = place.partition(" ")
    return [sql.or_(JOBS.c.ended < ended, sql.and_(JOBS.c.ended == ended, JOBS.c.uid > uid))]


def _upsert_statement(insert: "database_url.Insert") -> sql.UpdateBase:
    """Build the statement that writes a row, except over a final one, and returns the UID if it did."""
    changed = {column.name: insert.excluded[column.name] for column in JOBS.c if column is not JOBS.c.uid}
    return insert.on_conflict_do_update(
        index_elements=[JOBS.c.uid], set_=changed, where=JOBS.c.ended.is_(None)
    ).returning(JOBS.c.uid)


def _row(record: JobRecord) -> dict[str, Any]:
    ended = _utc(record.ended) if record.ended else None
    whole = msgspec.structs.replace(record, log="", ended=ended)
    return {
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "number": record.number,
        "user": record.user,
        "project": record.project[:63],
        "phase": record.phase,
        "ended": ended,
        "record": msgspec.json.encode(whole).decode(),
        **summed_columns(record),
        # PostgreSQL accepts no NUL in text.
        "log": record.log.replace("\x00", ""),
    }


def _records(rows: Iterable[sql.Row[Any]]) -> list[JobRecord]:
    """The records of the readable rows: an unreadable one does not hide the others."""
    found = []
    for row in rows:
        try:
            record = decode(row.record, as_type=JobRecord)
        except UnreadableError as error:
            log.warning("a record cannot be read and is left alone", uid=row.uid, error=str(error))
        else:
            found.append(msgspec.structs.replace(record, log=getattr(row, "log", "")))
    return found


def _utc(text: str) -> str:
    """Convert an RFC 3339 time so that times compare as text.

    Raises `ValueError` for other text.
    """
    return datetime.fromisoformat(text).astimezone(UTC).strftime(_UTC)
