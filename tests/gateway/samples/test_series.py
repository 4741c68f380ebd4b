"""What devices, namespaces and jobs used over time, as the gateway's own sampler kept it under a moved clock."""

import math
import zlib
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from dovetail_gateway.samples.batches import Batch, SamplesError
from dovetail_gateway.samples.schema import CURVES, LAYOUTS, SAMPLES
from dovetail_gateway.samples.store import SampleStore
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.openapi import table
from tests.gateway.samples.week import BEGIN, sampling


def running(started: str, **status: Any) -> dict[str, Any]:
    return {"phase": "Running", "number": 1, "gpus": 1, "request": "1", "nodes": ["a"], "startTime": started} | status


async def test_the_last_hour_of_a_node_is_that_of_its_devices(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        it.load("a", *[0.5] * 8, powerWatts=200, temperatureCelsius=60, usedMiB=8192)
        it.load("a", 0.9, powerWatts=300, temperatureCelsius=81, usedMiB=8192)
        await it.face.until_like(api)
        await it.steps(4)
        found = await it.series("of=Node&name=a")
    row = {name: values[-1] for name, values in found["items"][0].items() if isinstance(values, list)}
    assert row == {
        "gpus": 8,
        "promised": 2,
        "used": pytest.approx(4.4),
        "utilization": pytest.approx(0.55),
        "memory": 0.25,
        "powerWatts": 1700,
        "temperatureCelsius": 81,
    }
    assert (found["stepSeconds"], found["keptSince"]) == (30, "2026-11-01T00:00:00Z")
    assert len(found["items"][0]["used"]) == 120
    assert found["items"][0]["used"].count(None) == 116


async def test_a_device_has_a_curve_of_its_own_and_an_old_report_has_no_figures(api: GatewayApiServer) -> None:
    api.objects["gpunodes"]["a"]["status"]["observedAt"] = "2020-01-01T00:00:00Z"
    api.put("gpunodes", api.objects["gpunodes"]["a"])
    async with sampling(api) as it:
        await it.steps(1)
        api.objects["gpunodes"]["a"]["status"]["observedAt"] = "2100-01-01T00:00:01Z"
        it.load("a", 0.1, 0.2)
        await it.face.until_like(api)
        await it.steps(1)
        found = (await it.series("of=Device&name=a"))["items"]
    assert [each["name"] for each in found] == [str(index) for index in range(8)]
    assert [each["utilization"][-2:] for each in found[:2]] == [[None, 0.1], [None, 0.2]]
    assert found[0]["promised"][-2:] == [1, 1]


async def test_a_week_is_kept_in_half_hours_and_survives_a_restart(api: GatewayApiServer, tmp_path: Path) -> None:
    """Each day, the devices work from 8 to 18."""

    def by_day(step: int) -> None:
        hour = step // 2 % 24
        it.load("a", *[0.8 if 8 <= hour < 18 else 0.1] * 8)

    async with sampling(api, file=tmp_path / "s.db") as it:
        await it.steps(7 * 48, seconds=1800, before=by_day)
        it.clock.move(minutes=-29)
        asked = f"of=Cluster&since={BEGIN:%Y-%m-%dT%H:%M:%SZ}"
        before = await it.series(asked)
        clock = it.clock
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        after = await it.series(asked)
    assert (before["stepSeconds"], len(before["items"][0]["used"])) == (1800, 7 * 48)
    assert after == before
    used = before["items"][0]["used"][: 7 * 48]
    days = [used[day * 48 : day * 48 + 48] for day in range(7)]
    assert all(math.isclose(sum(each) / 48, (20 * 6.4 + 28 * 0.8) / 48, rel_tol=0.01) for each in days)
    assert [each[20] > 6 > each[2] for each in days] == [True] * 7


async def test_a_month_back_is_there_in_two_hours_and_not_more(api: GatewayApiServer, tmp_path: Path) -> None:
    async with sampling(api, file=tmp_path / "s.db") as it:
        await it.steps(40 * 12, seconds=7200)
        found = await it.series("of=Cluster&since=2026-11-01T00:00:00Z")
    assert (found["stepSeconds"], len(found["items"][0]["gpus"])) == (7200, 372)
    assert found["items"][0]["gpus"][1:-1] == [16] * 370
    with SampleStore(f"sqlite:///{tmp_path / 's.db'}")._engine.connect() as database:
        kept = {row.tier: row.rows for row in database.execute(_rows_by_tier())}
    assert kept[3] <= 373 * 3, "what no ring has room for is deleted"


def _rows_by_tier() -> sql.Select[Any]:
    return sql.select(SAMPLES.c.tier, sql.func.count().label("rows")).group_by(SAMPLES.c.tier)


async def test_a_finished_job_keeps_its_curves_and_marks_when_its_object_is_gone(
    api: GatewayApiServer, tmp_path: Path
) -> None:
    async with sampling(api, file=tmp_path / "s.db") as it:
        api.put("gpujobs", make_job("train", namespace="red", status=running(it.clock.text)))
        it.load("a", 0.75)
        await it.face.until_like(api)
        await it.steps(20)
        ended = running("2026-11-01T00:00:00Z", phase="Succeeded", completionTime=it.clock.text)
        api.put("gpujobs", make_job("train", namespace="red", status=ended))
        api.delete("pods", "red/train-0")
        await it.face.until_like(api)
        await it.steps(1)
        api.delete("gpujobs", "red/train")
        await it.face.until_like(api)
        await it.steps(1)
        here = await it.series("of=Job&namespace=red&name=train")
        clock = it.clock
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        assert await it.series("of=Job&namespace=red&name=train", token="red-token") == here
    row = here["items"][0]
    assert (row["promised"], row["used"], row["utilization"]) == ([1] * 20, [0.75] * 20, [0.75] * 20)
    assert [(each["kind"], each["at"], each["nodes"]) for each in here["marks"]] == [
        ("Started", "2026-11-01T00:00:00Z", ["a"]),
        ("Ended", "2026-11-01T00:10:00Z", ["a"]),
    ]


async def test_a_job_has_nothing_of_the_one_before_it_whose_name_it_has(api: GatewayApiServer, tmp_path: Path) -> None:
    """The last pod of that one still ends."""
    before = make_job(
        "train", namespace="red", number=7, user="canary", status=running("2026-11-01T00:00:00Z", number=7)
    )
    pod = make_bound_pod("canary-0", namespace="red", job="train", number=7, device="a-0")
    api.put("gpujobs", before)
    api.put("pods", pod)
    async with sampling(api, file=tmp_path / "s.db") as it:
        await it.face.until_like(api)
        await it.steps(20)
        api.delete("gpujobs", "red/train")
        api.put("pods", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": it.clock.text}})
        waits = {"phase": "Queued", "number": 8, "reason": "Resources", "message": "Need 1 GPU, only 0 available"}
        successor = make_job("train", namespace="red", number=8, status=waits)
        successor["metadata"]["uid"] = "its-successor"
        api.put("gpujobs", successor)
        api.delete("pods", "red/train-0")
        await it.face.until_like(api)
        await it.steps(2)
        await it.series("of=Job&namespace=red&name=train", status=404)
        asked = [each for each in table() if each.method == "GET" and "/jobs/{namespace}/{name}" in each.path]
        for each in asked:
            found = await it.face.get(each.path.format(namespace="red", name="train"), token="admin-token")
            assert "canary" not in found.text, (each.operation, found.text)
        api.delete("gpujobs", "red/train")
        await it.face.until_like(api)
        assert (await it.series("of=Job&namespace=red&name=train"))["items"][0]["promised"] == [1] * 20
    assert len(asked) >= 5


async def test_a_restart_elsewhere_is_a_move_and_a_preemption_has_a_mark(api: GatewayApiServer) -> None:
    first = {
        "number": 1, "reason": "Preempted", "message": "", "counted": False, "startTime": "2026-11-01T00:00:00Z",
        "endTime": "2026-11-01T00:10:00Z", "nodes": ["a"],
    }  # fmt: skip
    async with sampling(api) as it:
        it.clock.move(minutes=30)
        status = running(
            "2026-11-01T00:20:00Z",
            attempts=[first],
            nodes=["b"],
            preemption={"count": 1, "lastTime": "2026-11-01T00:10:00Z"},
        )
        api.put("gpujobs", make_job("train", namespace="red", status=status))
        await it.face.until_like(api)
        await it.steps(2)
        on = {node: (await it.series(f"of=Node&name={node}"))["marks"] for node in "ab"}
    assert [(each["kind"], each["at"][11:16]) for each in on["a"]] == [("Started", "00:00"), ("Preempted", "00:10")]
    assert [(each["kind"], each["at"][11:16]) for each in on["b"]] == [("Moved", "00:20")]


async def test_queue_waits_and_starts_are_those_of_the_namespaces_that_one_sees(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        await it.steps(1)
        waits = {"phase": "Queued", "number": 3, "reason": "Resources"}
        for namespace in ("red", "canaryns"):
            api.put("gpujobs", make_job("waits", namespace=namespace, number=3, status=waits))
        it.clock.move(minutes=60)
        api.put("gpujobs", make_job("train", namespace="red", status=running(it.clock.text)))
        await it.face.until_like(api)
        await it.steps(1)
        seen = {
            token: (await it.series("of=Cluster", token=token))["items"][0] for token in ("admin-token", "red-token")
        }
        by_namespace = await it.series("of=Namespace", token="red-token")
    last = {token: (row["waiting"][-1], row["running"][-1]) for token, row in seen.items()}
    assert last == {"admin-token": (2, 2), "red-token": (1, 1)}
    # Devices are for all who may list anything, as on the page Map.
    assert [row["promised"][-1] for row in seen.values()] == [2, 2]
    red = by_namespace["items"][0]
    assert [row["name"] for row in by_namespace["items"]] == ["red"]
    assert (red["starts"][-1], red["meanWaitSeconds"][-1]) == (1, 3630)


async def test_no_curve_and_no_mark_names_what_one_may_not_list(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        api.put(
            "gpujobs", make_job("canaryjob", namespace="canaryns", number=7, status=running(it.clock.text, number=7))
        )
        await it.face.until_like(api)
        await it.steps(3)
        for query in ("of=Cluster", "of=Model", "of=Node&name=a", "of=Device&name=a", "of=Namespace"):
            found = await it.face.get(f"/api/v3/series?{query}", token="red-token")
            assert (found.status, "canary" in found.text) == (200, False), query
        assert "canaryjob" in (await it.face.get("/api/v3/series?of=Node&name=a", token="admin-token")).text
        hidden = await it.series("of=Job&namespace=canaryns&name=canaryjob", token="red-token", status=404)
        absent = await it.series("of=Job&namespace=canaryns&name=canarynone", token="red-token", status=404)
        await it.series("of=Namespace&name=canaryns", token="red-token", status=404)
    assert hidden["detail"].replace("canaryjob", "X") == absent["detail"].replace("canarynone", "X")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("of=Node", "name is missing: of=Node is asked of one node"),
        ("of=Job&name=train", "namespace is missing: of=Job is asked of one job, so add namespace=NAMESPACE"),
        (
            "of=Cluster&since=2026-11-01T02:00:00Z&until=2026-11-01T01:00:00Z",
            'since "2026-11-01T02:00:00Z": must be before until, which is 2026-11-01T01:00:00Z',
        ),
        ("of=Cluster&since=2026-13-01T00:00:00Z", 'since "2026-13-01T00:00:00Z": month must be in 1..12'),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(api: GatewayApiServer, query: str, sentence: str) -> None:
    async with sampling(api) as it:
        it.clock.move(days=1)
        assert sentence in (await it.series(query, status=422))["detail"]


async def test_of_what_was_never_sampled_there_are_no_samples(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        await it.steps(1)
        found = await it.series("of=Node&name=c", status=404)
    assert found["detail"] == "there are no samples of the node c"


async def test_models_are_apart(api: GatewayApiServer) -> None:
    api.objects["gpunodes"]["b"]["status"]["devices"] = [
        each | {"model": "NVIDIA H100 80GB HBM3"} for each in api.objects["gpunodes"]["b"]["status"]["devices"]
    ]
    api.put("gpunodes", api.objects["gpunodes"]["b"])
    async with sampling(api) as it:
        await it.steps(1)
        found = (await it.series("of=Model"))["items"]
    assert [(each["name"], each["promised"][-1]) for each in found] == [("H100", 0), ("V100", 2)]


async def test_two_gateways_write_the_same_rows_and_the_first_counts(api: GatewayApiServer, tmp_path: Path) -> None:
    async with sampling(api, file=tmp_path / "s.db") as one, sampling(api, file=tmp_path / "s.db") as two:
        one.load("a", 0.5)
        await one.face.until_like(api)
        await one.steps(3)
        await two.face.until_like(api)
        await two.steps(3)
        clock = two.clock
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        assert (await it.series("of=Device&name=a"))["items"][0]["utilization"][-3:] == [0.5] * 3


async def test_samples_wait_for_a_database_that_fails(
    api: GatewayApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = SampleStore.write

    def fails(_store: SampleStore, _batch: Batch) -> None:
        raise SamplesError("s.db", problem="database is locked")

    async with sampling(api, file=tmp_path / "s.db") as it:
        monkeypatch.setattr(SampleStore, "write", fails)
        await it.steps(3)
        assert (await it.series("of=Cluster"))["items"][0]["gpus"][-3:] == [16] * 3
        monkeypatch.setattr(SampleStore, "write", write)
        await it.steps(1)
        clock = it.clock
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        assert (await it.series("of=Cluster"))["items"][0]["gpus"][-4:] == [16] * 4


@pytest.mark.parametrize("table", [SAMPLES, CURVES, LAYOUTS], ids=lambda table: str(table.name))
async def test_rows_that_cannot_be_read_are_left_out(api: GatewayApiServer, tmp_path: Path, table: sql.Table) -> None:
    async with sampling(api, file=tmp_path / "s.db") as it:
        await it.steps(3)
        clock = it.clock
    column = "subjects" if table is LAYOUTS else "data"
    with SampleStore(f"sqlite:///{tmp_path / 's.db'}")._engine.begin() as database:
        assert database.execute(sql.update(table).values({column: zlib.compress(b"\0")})).rowcount
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        await it.steps(1)
        assert (await it.series("of=Cluster"))["items"][0]["gpus"][-1] == 16


def test_a_database_that_is_none_is_named() -> None:
    with pytest.raises(SamplesError, match=r"samples mysql://me:\*\*\*@db/x: allowed are sqlite:///FILE"):
        SampleStore("mysql://me:secret@db/x")


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SamplesError, match=r"samples sqlite:///.*s\.db"):
        SampleStore(f"sqlite:///{tmp_path}/file/s.db").open()


async def test_the_curve_of_a_pod_that_shares_a_device_is_its_part(api: GatewayApiServer) -> None:
    for name, number, milli in (("half", 11, 500), ("quarter", 12, 250)):
        status = running("2026-11-01T00:00:00Z", number=number)
        api.put("gpujobs", make_job(name, namespace="red", number=number, status=status))
        pod = make_bound_pod(f"{name}-0", namespace="red", job=name, number=number, device="b-0", node="b")
        text = pod["metadata"]["annotations"]["dovetail.dev/allocation"]
        pod["metadata"]["annotations"]["dovetail.dev/allocation"] = text.replace("1000", str(milli)).replace(
            "32768", str(8192 * milli // 250)
        )
        api.put("pods", pod)
    async with sampling(api) as it:
        it.load("b", 0.6, powerWatts=300, usedMiB=12288, temperatureCelsius=70)
        await it.face.until_like(api)
        await it.steps(1)
        found = [(await it.series(f"of=Job&namespace=red&name={name}"))["items"][0] for name in ("half", "quarter")]
    keys = ("promised", "used", "utilization", "memory", "powerWatts", "temperatureCelsius")
    assert [tuple(each[key][0] for key in keys) for each in found] == [
        (0.5, 0.3, 0.6, 0.5, 200, 70),
        (0.25, 0.15, 0.6, 0.5, 100, 70),
    ]


async def test_a_moment_of_the_past_has_the_figures_of_each_device_then(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        it.load("a", *[0.25] * 8, temperatureCelsius=40, usedMiB=8192)
        await it.face.until_like(api)
        await it.steps(4)
        it.load("a", *[0.75] * 8, temperatureCelsius=70, usedMiB=16384)
        api.delete("pods", "red/train-0")
        await it.face.until_like(api)
        await it.steps(4)
        found = [await it.moment(f"2026-11-01T00:0{at}Z") for at in ("1:00", "3:20", "3:50")]
        never = await it.moment("2026-10-31T23:00:00Z")
    assert [each["since"] for each in found] == [f"2026-11-01T00:0{at}Z" for at in ("1:00", "3:00", "3:30")]
    one = [each["nodes"][0] for each in found]
    assert [each["name"] for each in found[0]["nodes"]] == ["a", "b"]
    assert one[0]["indexes"] == list(range(8))
    assert [
        (each["promised"][:3], each["utilization"][0], each["memory"][0], each["temperatureCelsius"][0]) for each in one
    ] == [([1, 1, 0], 0.25, 0.25, 40), ([0, 1, 0], 0.75, 0.5, 70), ([0, 1, 0], 0.75, 0.5, 70)]
    assert (never["nodes"], never["keptSince"]) == ([], "2026-11-01T00:00:00Z")


async def test_a_moment_in_a_pause_of_the_gateway_has_the_mean_of_a_longer_step(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        it.load("a", *[0.25] * 8)
        await it.face.until_like(api)
        await it.steps(2)
        it.clock.move(minutes=20)
        await it.steps(1)
        found = await it.moment("2026-11-01T00:03:30Z")
    assert (found["since"], found["stepSeconds"]) == ("2026-11-01T00:00:00Z", 300)
    assert found["nodes"][0]["utilization"][0] == 0.25


@pytest.mark.parametrize("at", ["at=2026-11-02T00:00:00Z", "at=yesterday", "at=2026-02-30T00:00:00Z", ""])
async def test_a_moment_that_is_none_is_refused_with_what_is_allowed(api: GatewayApiServer, at: str) -> None:
    async with sampling(api) as it:
        found = await it.face.get(f"/api/v3/devices/then?{at}", token="admin-token")
    assert (found.status, "at" in found.json["detail"]) == (422, True), found.text


async def test_a_project_has_a_curve_over_all_namespaces_that_one_may_list(
    api: GatewayApiServer, tmp_path: Path
) -> None:
    api.delete("gpujobs", "red/train")
    for namespace, number, device in (("red", 2, "a-0"), ("blue", 3, "a-1")):
        job = make_job(
            "sweep", namespace=namespace, number=number, status=running("2026-11-01T00:00:00Z", number=number)
        )
        waits = make_job("next", namespace=namespace, number=number + 10, status={"phase": "Queued", "number": 9})
        for each in (job, waits):
            each["metadata"]["labels"]["dovetail.dev/project"] = "shared"
            api.put("gpujobs", each)
        pod = make_bound_pod("sweep-0", namespace=namespace, job="sweep", number=number, device=device)
        api.put("pods", pod)
    for gone in ("red/train-0", "canaryns/canarypod"):
        api.delete("pods", gone)
    async with sampling(api, file=tmp_path / "s.db") as it:
        it.load("a", 0.5, 0.25)
        await it.face.until_like(api)
        await it.steps(3)
        found = await it.series("of=Project")
        own = await it.series("of=Project&name=shared", token="red-token")
        await it.series("of=Project&name=canaryns-project", token="red-token", status=404)
        clock = it.clock
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        assert await it.series("of=Project&name=shared", token="red-token") == own, "it survives a restart"
    rows = {row["name"]: row for row in found["items"]}
    assert [rows["shared"][name][-1] for name in ("promised", "used", "running", "waiting")] == [2, 0.75, 2, 2]
    assert [own["items"][0][name][-1] for name in ("promised", "used", "running", "waiting")] == [1, 0.5, 1, 1]
    assert found["marks"] == []
