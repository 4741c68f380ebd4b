"""Both databases keep the same of the samples, also where two gateways write to one at the same time."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from dovetail.answers.inventory import DeviceUse
from dovetail.answers.use.series import MarkRow
from dovetail.api.gpunode import Device
from dovetail_gateway.samples import readings
from dovetail_gateway.samples.batches import Batch, KeptCurve, SamplesError
from dovetail_gateway.samples.curves import Curve
from dovetail_gateway.samples.marks import Mark
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import TIERS, Row
from dovetail_gateway.samples.store import SampleStore
from dovetail_gateway.samples.usage import MOST_OF_A_USER, Account, Used

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
AT, TODAY = int(NOW.timestamp()), NOW.date()
USERS = [f"system:serviceaccount:{'n' * 63}:{'a' * 253}", "图" * MOST_OF_A_USER]
Stores = Callable[[], SampleStore]


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Makes stores of one database, which has no tables before the first one is opened."""
    url = f"sqlite:///{tmp_path}/deep/samples.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql")
    made: list[SampleStore] = []

    def make() -> SampleStore:
        made.append(SampleStore(url))
        return made[-1]

    yield make
    first = make()
    first.open()
    with first._engine.begin() as connection:
        for name in ("dovetail_samples", "dovetail_sample_layouts", "dovetail_sample_places", "dovetail_sample_jobs",
                     "dovetail_sample_marks", "dovetail_usage"):  # fmt: skip
            connection.exec_driver_sql(f"DROP TABLE {name}")
    for each in made:
        each.close()


@pytest.fixture
def store(stores: Stores) -> SampleStore:
    opened = stores()
    opened.open()
    return opened


def row(*subjects: str, at: int = AT, tier: int = 0) -> Row:
    return Row(tier=tier, at=at, subjects=subjects, data=bytes(range(16)) * len(subjects))


def curve(uid: str, *, start: int = AT, until: int = AT + 60, name: str = "train") -> KeptCurve:
    return KeptCurve(uid=uid, namespace="red", name=name, until=until, data=Curve(start).encode())


def mark(uid: str, *, at: int = AT) -> Mark:
    said = MarkRow(at="2026-11-29T12:00:00Z", kind="Started", namespace="red", job="train", number=7, nodes=["a", "b"])
    return Mark(uid=uid, at=at, row=said)


def account(user: str = "ada", *, day: date = TODAY) -> Account:
    return Account(day=day, namespace="red", project="vision", user=user, model="A100")


def test_all_of_a_batch_is_read_as_it_was_written(store: SampleStore) -> None:
    place = Place(node="a", index=3, model="NVIDIA A100-SXM4-80GB", gpus=0.5, memory_mib=81920)
    used = Used(gpu_seconds=1e9 + 0.125, used_seconds=0.1)
    batch = Batch(
        rows={"device": [row("GPU-1", "GPU-2"), row("GPU-1", at=AT - 60)], "project": [row("vision")]},
        places={"GPU-1": place},
        curves=[curve("u1")],
        marks=[mark("u1"), mark("u2", at=AT - 1)],
        usage={account(user): used for user in USERS},
    )
    store.write(batch)
    store.write(batch)
    assert list(store.rows("device")) == [row("GPU-1", at=AT - 60), row("GPU-1", "GPU-2")]
    assert list(store.rows("project")) == [row("vision")]
    assert list(store.rows("namespace")) == []
    assert store.places() == {"GPU-1": place}
    assert store.curve("red", name="train") == curve("u1")
    assert [each.at for each in store.marks(since=AT - 10, most=10)] == [AT - 1, AT]
    assert store.marks(since=AT, most=10)[0].row.nodes == ["a", "b"]
    assert store.usage() == {account(user): used for user in USERS}


def test_what_a_node_says_of_a_device_can_be_written(store: SampleStore) -> None:
    """A node's token may report any model and numbers: a batch that no database takes would hold up all others."""
    device = Device(index=2**40, uuid="GPU\x00-1", vendor="nvidia", model="A\x00" * 300, memory_mib=2**50)
    use = DeviceUse(node="a", device=device)
    place = readings._place(use)
    store.write(Batch(places={device.uuid: place}, usage={account(): Used(gpu_seconds=1)}))
    assert store.places() == {"GPU-1": place}
    assert (place.model, place.index) == ("A" * 128, 2**31 - 1)


def test_gpu_time_only_grows_and_the_later_end_of_a_curve_counts(store: SampleStore) -> None:
    for seconds in (5.0, 9.0, 7.0):
        store.write(Batch(usage={account(): Used(gpu_seconds=seconds, used_seconds=10 - seconds)}))
    assert store.usage() == {account(): Used(gpu_seconds=9.0, used_seconds=5.0)}
    store.write(Batch(curves=[curve("u1", until=AT + 600)]))
    store.write(Batch(curves=[curve("u1", until=AT + 60)]))
    assert [each.until for each in store.curves(["u1", "gone"])] == [AT + 600]


def test_what_is_old_is_forgotten_and_nothing_else(store: SampleStore) -> None:
    old = NOW - timedelta(days=31)
    for moment in (old, NOW):
        at = int(moment.timestamp())
        rows = [row(f"GPU-{at}", at=at - tier.span // 2, tier=number) for number, tier in enumerate(TIERS)]
        store.write(
            Batch(
                rows={"device": rows},
                curves=[curve(f"u{at}", until=at)],
                marks=[mark(f"u{at}", at=at)],
                usage={account(day=moment.date()): Used(gpu_seconds=1)},
            )
        )
    store.forget(now=NOW, keep_days=30)
    assert {each.subjects for each in store.rows("device")} == {(f"GPU-{AT}",)}
    assert [each.uid for each in store.curves([f"u{int(old.timestamp())}", f"u{AT}"])] == [f"u{AT}"]
    assert [each.at for each in store.marks(since=0, most=10)] == [AT]
    assert list(store.usage()) == [account()]


def test_a_list_of_subjects_that_another_gateway_forgot_is_written_again(stores: Stores) -> None:
    """The list is deleted with its last samples, while this gateway remembers that it is there."""
    ours, theirs = stores(), stores()
    ours.open()
    theirs.open()
    long_ago = AT - 2 * TIERS[-1].span
    ours.write(Batch(rows={"device": [row("GPU-1", at=long_ago)]}))
    theirs.forget(now=NOW, keep_days=30)
    ours.write(Batch(rows={"device": [row("GPU-1")]}))
    fresh = stores()
    fresh.open()
    assert list(fresh.rows("device")) == [row("GPU-1")]


def test_gateways_that_start_and_write_together_lose_nothing(stores: Stores) -> None:
    """They open a database without tables at once, count the same, in orders of their own, and tidy up meanwhile."""
    made, begin = [stores() for _ in range(4)], threading.Barrier(4)
    failures: list[SamplesError] = []
    accounts = [account(f"user-{number}") for number in range(40)]

    def work(store: SampleStore, rng: random.Random) -> None:
        begin.wait()
        try:
            store.open()
            for turn in range(15):
                rng.shuffle(accounts_of := list(accounts))
                places = [(f"GPU-{number}", Place(node="a", index=number, model="T4", gpus=1, memory_mib=1))
                          for number in range(40)]  # fmt: skip
                rng.shuffle(places)
                curves = [curve(f"u{number}", until=AT + turn) for number in range(40)]
                rng.shuffle(curves)
                store.write(
                    Batch(
                        rows={"device": [row("GPU-1", f"GPU-{turn}", at=AT + turn)]},
                        places=dict(places),
                        curves=curves,
                        marks=[mark(f"u{number}", at=AT + turn) for number in rng.sample(range(40), 40)],
                        usage={each: Used(gpu_seconds=turn, used_seconds=turn) for each in accounts_of},
                    )
                )
                store.forget(now=NOW, keep_days=30)
        except SamplesError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(each, random.Random(at))) for at, each in enumerate(made)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [each.at for each in made[0].rows("device")] == [AT + turn for turn in range(15)]
    assert set(made[0].usage()) == set(accounts)
    assert {used.gpu_seconds for used in made[0].usage().values()} == {14}
    assert len(made[0].marks(since=0, most=1000)) == 600


def test_it_answers_as_plain_tables_would(store: SampleStore) -> None:
    """Two tenants with equal names; jobs come again, and samples grow old and are forgotten."""
    rng, now = random.Random(5), AT
    curves: dict[str, KeptCurve] = {}
    marks: dict[tuple[str, str, int], Mark] = {}
    places: dict[str, Place] = {}
    used: dict[Account, Used] = {}
    for number in range(60):
        now += rng.choice([60, 600, 7200])
        namespace, name = rng.choice(["red", "blue"]), rng.choice(["train", "tune"])
        # The step of a long job reaches beyond the first ones of its successors.
        start = now - rng.choice([0, 30, 86_400])
        made = replace(
            curve(f"u{number}", start=start, until=now + rng.choice([30, 40_000]), name=name), namespace=namespace
        )
        curves[made.uid] = made
        happened = mark(f"u{number}", at=start)
        happened = replace(happened, row=msgspec.structs.replace(happened.row, namespace=namespace, job=name))
        marks[happened.key] = happened
        place = Place(node=rng.choice("ab"), index=number % 3, model="V100", gpus=1.0, memory_mib=1024)
        places[f"g{number % 5}"] = place
        today = datetime.fromtimestamp(now, UTC).date()
        whose = Account(day=today, namespace=namespace, project="", user=rng.choice(["ada", "bob"]), model="V100")
        before = used.get(whose, Used(gpu_seconds=0.0, used_seconds=0.0))
        used[whose] = Used(gpu_seconds=before.gpu_seconds + 60, used_seconds=before.used_seconds + 30)
        store.write(
            Batch(
                curves=[made], marks=[happened], places={f"g{number % 5}": place}, usage={whose: used[whose]}
            )
        )  # fmt: skip
        if number % 15 == 14:
            keep_days = rng.choice([1, 2])
            store.forget(now=datetime.fromtimestamp(now, UTC), keep_days=keep_days)
            old = now - keep_days * 86_400
            curves = {uid: each for uid, each in curves.items() if each.until >= old}
            marks = {key: each for key, each in marks.items() if each.at >= old}
            used = {each: found for each, found in used.items() if each.day >= datetime.fromtimestamp(old, UTC).date()}
        if number % 5 == 4:
            _check_curves(store, curves=curves)
            assert (store.places(), store.usage()) == (places, used)
            since, most = now - rng.choice([0, 600, 90_000]), rng.choice([1, 3, 100])
            recent = [each for each in marks.values() if each.at >= since]
            assert {each.key for each in store.marks(since=since, most=100)} == {each.key for each in recent}
            found = store.marks(since=since, most=most)
            assert len(found) == min(most, len(recent))
            assert [each.at for each in found] == sorted(each.at for each in found)
            if recent and most == 1:
                newest = {max(each.at for each in recent if each.row.namespace == own) for own in _namespaces(recent)}
                assert found[0].at in newest
    assert len(curves) < 60, "some were forgotten"


def _namespaces(marks: list[Mark]) -> set[str]:
    return {each.row.namespace for each in marks}


def _check_curves(store: SampleStore, *, curves: dict[str, KeptCurve]) -> None:
    for namespace in ("red", "blue"):
        for name in ("train", "tune"):
            own = [each for each in curves.values() if (each.namespace, each.name) == (namespace, name)]
            # Of many jobs of a name, those that ended last are looked at.
            latest = sorted(own, key=lambda each: each.until)[-8:]
            found = store.curve(namespace, name=name)
            starts = {each.curve.start for each in latest}
            assert (None if found is None else found.curve.start) == max(starts, default=None)
            assert found is None or found.uid in {each.uid for each in own}
            for each in own[:3]:
                assert store.curve(namespace, name=name, uid=each.uid) == each
                assert store.curve("green", name=name, uid=each.uid) is None
    assert {each.uid for each in store.curves([*curves, "gone"])} == set(curves)
