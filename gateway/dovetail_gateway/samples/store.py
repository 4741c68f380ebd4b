"""The database of samples: SQLite in a file, or PostgreSQL. Every call blocks: call it in a thread.

Several gateways may write to one database. A row of samples and a mark have the time of what they say as their key, and
the first counts; GPU time only grows, and the larger counts. So no gateway needs to be the only writer. They write one
after the other.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sql

from dovetail.answers.use.series import MarkRow
from dovetail.decoding import UnreadableError, decode
from dovetail.formats.timestamps import timestamp
from dovetail.logs import get_logger
from dovetail.process import database_url
from dovetail.process.database_url import DatabaseURLError
from dovetail_gateway.samples.batches import Batch, KeptCurve, Kind, SamplesError
from dovetail_gateway.samples.curves import Curve
from dovetail_gateway.samples.marks import Mark
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import TIERS, Row
from dovetail_gateway.samples.schema import CURVES, LAYOUTS, MARKS, METADATA, PLACES, SAMPLES, USAGE
from dovetail_gateway.samples.usage import Account, Used

log = get_logger("dovetail.gateway.samples")

# Fast, and half of the size; the strongest level saves another tenth.
_LEVEL: Final = 1
_MOST_WORDS: Final = 300
_MOST_LAYOUTS: Final = 64
_MOST_OF_A_NAME: Final = 8
# The advisory lock of the writer in PostgreSQL: any number that no other program takes there.
_WRITER: Final = int.from_bytes(b"samples", "big")


class SampleStore:
    """Samples, curves, marks and GPU time in one database."""

    def __init__(self, url: str) -> None:
        """Raises `SamplesError` for an invalid URL or a missing driver."""
        try:
            self._url = parsed = database_url.parse(url)
            self.where = database_url.shown(parsed)
            self._file = Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
            arguments = {"timeout": database_url.LOCK_SECONDS} if self._file else database_url.connect_args(parsed)
            self._engine = sql.create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
        except DatabaseURLError as error:
            raise SamplesError(error.where, problem=error.problem) from error
        except (sql.exc.ArgumentError, ModuleNotFoundError) as error:
            raise SamplesError("url", problem=str(error)) from error
        self._insert = database_url.insert_of(parsed)
        self._layouts: dict[str, tuple[str, ...]] = {}

    def open(self) -> None:
        """Create what is missing. Raises `SamplesError`."""
        try:
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._engine.connect() as connection:
                    # A reader does not wait for the writer. The last seconds before a power failure may be lost.
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            with self._writing() as connection:
                METADATA.create_all(connection)
        except (OSError, sql.exc.SQLAlchemyError) as error:
            raise SamplesError(self.where, problem=self._problem(error)) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def write(self, batch: Batch) -> None:
        """Write what a sample adds, all of it or nothing. Raises `SamplesError`."""
        try:
            with self._writing() as connection:
                for kind, rows in batch.rows.items():
                    self._write_rows(connection, kind=kind, rows=rows)
                self._write_places(connection, places=batch.places)
                self._write_curves(connection, curves=batch.curves)
                self._write_marks(connection, marks=batch.marks)
                self._write_usage(connection, usage=batch.usage)
        except sql.exc.SQLAlchemyError as error:
            # What was added to the lists of subjects is not in the database.
            self._layouts.clear()
            raise SamplesError(self.where, problem=self._problem(error)) from error

    def rows(self, kind: Kind) -> Iterator[Row]:
        """The rows that the rings had at the last sample, the oldest first; one that cannot be read is left out."""
        newest = sql.select(sql.func.max(SAMPLES.c.at)).where(SAMPLES.c.kind == kind, SAMPLES.c.tier == 0)
        last = self._read(newest)[0][0]
        if last is None:
            return
        # Also of a gateway that was away for days: coarser steps that were not complete follow from the finer ones.
        kept = [SAMPLES.c.at > last - tier.span for tier in TIERS]
        current = sql.or_(*(sql.and_(SAMPLES.c.tier == tier, recent) for tier, recent in enumerate(kept)))
        wanted = sql.select(SAMPLES).where(SAMPLES.c.kind == kind, current).order_by(SAMPLES.c.at)
        for found in self._read(wanted):
            try:
                subjects, data = self._subjects(found.layout), zlib.decompress(found.data)
            except (zlib.error, UnreadableError) as error:
                log.warning("samples cannot be read and are left out", kind=kind, at=found.at, error=str(error))
            else:
                yield Row(tier=found.tier, at=found.at, subjects=subjects, data=data)

    def places(self) -> dict[str, Place]:
        """Where each device was last, by UUID."""
        return {
            row.uuid: Place(
                node=row.node, index=row.position, model=row.model, gpus=row.gpus, memory_mib=row.memory_mib
            )
            for row in self._read(sql.select(PLACES))
        }

    def curve(self, namespace: str, *, name: str, uid: str | None = None) -> KeptCurve | None:
        """The curve of this job, or of the last one of this name; None without one."""
        wanted = sql.select(CURVES).where(CURVES.c.namespace == namespace, CURVES.c.name == name)
        if uid is not None:
            wanted = wanted.where(CURVES.c.uid == uid)
        rows = self._read(wanted.order_by(CURVES.c.until.desc()).limit(_MOST_OF_A_NAME))
        # The last step of a long job may reach beyond the first ones of its successor.
        return max(_curves(rows), key=lambda each: each.curve.start, default=None)

    def curves(self, uids: Sequence[str]) -> list[KeptCurve]:
        """The curves of these jobs."""
        found: list[KeptCurve] = []
        for start in range(0, len(uids), 500):
            wanted = sql.select(CURVES).where(CURVES.c.uid.in_(uids[start : start + 500]))
            found += _curves(self._read(wanted))
        return found

    def marks(self, *, since: int, most: int) -> list[Mark]:
        """The latest marks of each namespace after `since`, as `marks.latest` chooses them, in the order of time."""
        turn = sql.func.row_number().over(partition_by=MARKS.c.namespace, order_by=MARKS.c.at.desc())
        ranked = sql.select(MARKS, turn.label("turn")).where(MARKS.c.at >= since).subquery()
        wanted = sql.select(ranked).order_by(ranked.c.turn, ranked.c.at.desc()).limit(most)
        return sorted((_mark(row) for row in self._read(wanted)), key=lambda mark: mark.at)

    def usage(self) -> dict[Account, Used]:
        """GPU time by account."""
        return {
            Account(
                day=date.fromisoformat(row.day),
                namespace=row.namespace,
                project=row.project,
                user=row.user,
                model=row.model,
            ): Used(gpu_seconds=row.gpu_seconds, used_seconds=row.used_seconds)
            for row in self._read(sql.select(USAGE))
        }

    def forget(self, *, now: datetime, keep_days: int) -> None:
        """Delete samples that no ring has room for, and curves, marks and GPU time of `keep_days` ago."""
        at, old = int(now.timestamp()), now - timedelta(days=keep_days)
        statements: list[sql.Delete] = [
            sql.delete(SAMPLES).where(SAMPLES.c.tier == tier, SAMPLES.c.at <= at - kept.span)
            for tier, kept in enumerate(TIERS)
        ]
        statements += [
            sql.delete(LAYOUTS).where(LAYOUTS.c.layout.not_in(sql.select(SAMPLES.c.layout))),
            sql.delete(CURVES).where(CURVES.c.until < int(old.timestamp())),
            sql.delete(MARKS).where(MARKS.c.at < int(old.timestamp())),
            sql.delete(USAGE).where(USAGE.c.day < old.date().isoformat()),
        ]
        try:
            with self._writing() as connection:
                for statement in statements:
                    connection.execute(statement)
        except sql.exc.SQLAlchemyError as error:
            raise SamplesError(self.where, problem=self._problem(error)) from error
        self._layouts.clear()

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """A transaction of the only writer at its time, so that no two wait for each other or undo what one needs."""
        with self._engine.begin() as connection:
            if self._file is None:
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_WRITER)))
            else:
                connection.exec_driver_sql("PRAGMA synchronous=NORMAL")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    def _write_rows(self, connection: sql.Connection, *, kind: Kind, rows: Iterable[Row]) -> None:
        for row in rows:
            if not row.subjects:
                continue
            layout = self._layout_of(connection, subjects=row.subjects)
            values = {
                "kind": kind,
                "tier": row.tier,
                "at": row.at,
                "layout": layout,
                "data": zlib.compress(row.data, _LEVEL),
            }
            connection.execute(self._insert(SAMPLES).values(values).on_conflict_do_nothing())

    def _layout_of(self, connection: sql.Connection, *, subjects: tuple[str, ...]) -> str:
        """The digest of the list of subjects, which is in the database from now on."""
        text = msgspec.json.encode(subjects)
        digest = hashlib.blake2s(text, digest_size=16).hexdigest()
        # Another gateway may have deleted a list that this one knows, with its last samples.
        if connection.execute(sql.select(LAYOUTS.c.layout).where(LAYOUTS.c.layout == digest)).first() is None:
            values = {"layout": digest, "subjects": zlib.compress(text)}
            connection.execute(sql.insert(LAYOUTS).values(values))
            self._remember(digest, subjects=subjects)
        return digest

    def _subjects(self, layout: str) -> tuple[str, ...]:
        """The subjects of a list; none for a list that is not there. Raises `UnreadableError` and `zlib.error`."""
        if layout not in self._layouts:
            rows = self._read(sql.select(LAYOUTS.c.subjects).where(LAYOUTS.c.layout == layout))
            if not rows:
                return ()
            self._remember(layout, subjects=decode(zlib.decompress(rows[0].subjects), as_type=tuple[str, ...]))
        return self._layouts[layout]

    def _remember(self, layout: str, *, subjects: tuple[str, ...]) -> None:
        self._layouts[layout] = subjects
        if len(self._layouts) > _MOST_LAYOUTS:
            del self._layouts[next(iter(self._layouts))]

    def _write_places(self, connection: sql.Connection, *, places: Mapping[str, Place]) -> None:
        if not places:
            return
        insert = self._insert(PLACES)
        changed = {name: insert.excluded[name] for name in ("node", "position", "model", "gpus", "memory_mib")}
        statement = insert.on_conflict_do_update(index_elements=[PLACES.c.uuid], set_=changed)
        rows = [
            {
                "uuid": uuid.replace("\x00", ""),
                "node": place.node,
                "position": place.index,
                "model": place.model,
                "gpus": place.gpus,
                "memory_mib": place.memory_mib,
            }
            for uuid, place in places.items()
        ]
        connection.execute(statement, rows)

    def _write_curves(self, connection: sql.Connection, *, curves: Sequence[KeptCurve]) -> None:
        if not curves:
            return
        insert = self._insert(CURVES)
        changed = {name: insert.excluded[name] for name in ("until", "data")}
        statement = insert.on_conflict_do_update(
            index_elements=[CURVES.c.uid], set_=changed, where=CURVES.c.until <= insert.excluded.until
        )
        rows = [
            {
                "uid": each.uid,
                "namespace": each.namespace,
                "name": each.name,
                "until": each.until,
                "data": zlib.compress(each.data, _LEVEL),
            }
            for each in curves
        ]
        connection.execute(statement, rows)

    def _write_marks(self, connection: sql.Connection, *, marks: Sequence[Mark]) -> None:
        if not marks:
            return
        rows = [
            {
                "at": each.at,
                "uid": each.uid,
                "kind": each.row.kind,
                "namespace": each.row.namespace,
                "name": each.row.job,
                "number": each.row.number,
                "nodes": msgspec.json.encode(each.row.nodes).decode(),
            }
            for each in marks
        ]
        connection.execute(self._insert(MARKS).on_conflict_do_nothing(), rows)

    def _write_usage(self, connection: sql.Connection, *, usage: Mapping[Account, Used]) -> None:
        if not usage:
            return
        insert = self._insert(USAGE)
        changed = {
            name: sql.case((insert.excluded[name] > USAGE.c[name], insert.excluded[name]), else_=USAGE.c[name])
            for name in ("gpu_seconds", "used_seconds")
        }
        statement = insert.on_conflict_do_update(index_elements=list(USAGE.primary_key.columns), set_=changed)
        rows = [
            {
                "day": account.day.isoformat(),
                "namespace": account.namespace,
                "project": account.project,
                "user": account.user,
                "model": account.model,
                "gpu_seconds": used.gpu_seconds,
                "used_seconds": used.used_seconds,
            }
            for account, used in usage.items()
        ]
        connection.execute(statement, rows)

    def _read(self, statement: sql.Select[Any]) -> Sequence[sql.Row[Any]]:
        try:
            with self._engine.connect() as connection:
                return connection.execute(statement).all()
        except sql.exc.SQLAlchemyError as error:
            raise SamplesError(self.where, problem=self._problem(error)) from error

    def _problem(self, error: Exception) -> str:
        """The error in a few words, without the URL's secrets."""
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        return database_url.without_secrets(text, url=self._url)[:_MOST_WORDS]


def _curves(rows: Iterable[sql.Row[Any]]) -> Iterator[KeptCurve]:
    """The curves of the readable rows: an unreadable one does not hide the others."""
    for row in rows:
        try:
            data = zlib.decompress(row.data)
            kept = KeptCurve(uid=row.uid, namespace=row.namespace, name=row.name, until=row.until, data=data)
            Curve.decode(data)
        except (zlib.error, ValueError) as error:
            log.warning("the curve of a job cannot be read", uid=row.uid, error=str(error))
        else:
            yield kept


def _mark(found: sql.Row[Any]) -> Mark:
    row = MarkRow(
        at=timestamp(datetime.fromtimestamp(found.at, UTC)),
        kind=found.kind,
        namespace=found.namespace,
        job=found.name,
        number=found.number,
        nodes=decode(found.nodes, as_type=list[str]),
    )
    return Mark(uid=found.uid, at=found.at, row=row)
