"""Both faces against a gateway over a real port."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dovetail.answers.jobs import JobRow
from dovetail.api.reasons.problems import NO_HISTORY
from dovetail.sdk import Client, errors, specs
from dovetail.sdk.blocking.jobs import Job
from dovetail.sdk.calls import v3
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import Face
from tests.sdk.conftest import Side, until
from tests.sdk.test_waits import row


async def test_the_cluster_is_read(side: Side) -> None:
    async with side.inside(side.client()) as client:
        status = await side.call(client.status)
        nodes = await side.all(client.nodes(model="V100"))
        me = await side.call(client.me)
    assert status.total_nodes == 2
    assert [node.name for node in nodes] == ["a", "b"]
    assert sum(device["available"] for device in nodes[0]["devices"]) == 6
    assert (me.username, me.namespaces) == ("rita", ["red"])


async def test_a_job_is_submitted_with_what_was_asked(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(
            client.submit, ["python", "train.py"], image="pytorch/pytorch", gpu="2(V100)", name="mine", priority=20,
            environment={"LR": "0.1"}, time_limit_seconds=3600, cpu_fallback_after_seconds=600,
        )  # fmt: skip
    assert (job.name, job.namespace, job.phase) == ("mine", "red", "Queued")
    spec = api.objects["gpujobs"]["red/mine"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["gpu"], spec["priority"], spec["activeDeadlineSeconds"]) == ("2(V100)", 20, 3600)
    assert (spec["onNoGPU"], spec["onNoGPUAfterSeconds"]) == ("RunOnCPU", 600)
    assert (container["command"], container["env"]) == (["python", "train.py"], [{"name": "LR", "value": "0.1"}])


@pytest.mark.parametrize(("options", "waits"), [({}, 1), ({"answer_seconds": 0}, 0), ({"answer_seconds": 3}, 3)])
async def test_a_submission_waits_for_the_queues_answer_as_long_as_is_said(
    side: Side, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], waits: int
) -> None:
    asked, create = list[int](), v3.create
    monkeypatch.setattr(
        v3, "create", lambda *words, **more: asked.append(more["answer_seconds"]) or create(*words, **more)
    )
    async with side.inside(side.client()) as client:
        await side.call(client.submit, ["true"], image="busybox", **options)
    assert asked == [waits]


async def test_a_job_without_gpus_is_one_on_the_cpu(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        await side.call(client.submit, ["true"], image="busybox", gpu=0, name="small")
    assert api.objects["gpujobs"]["red/small"]["spec"]["resources"] == {"device": "cpu"}


async def test_a_whole_spec_goes_as_it_is(api: GatewayApiServer, side: Side) -> None:
    spec = {"gpu": "0.5", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    async with side.inside(side.client()) as client:
        job = await side.call(client.submit, spec=spec)
    assert api.objects["gpujobs"][f"red/{job.name}"]["spec"] == spec


async def test_a_job_is_waited_for_and_each_state_is_shown(api: GatewayApiServer, side: Side) -> None:
    shown: list[JobRow] = []
    async with side.inside(side.client()) as client:
        job = await side.call(client.submit, ["true"], image="busybox", name="quick")
        waiting = asyncio.create_task(side.call(job.wait, timeout_seconds=30, progress=shown.append))
        await until(lambda: shown)
        api.objects["gpujobs"]["red/quick"]["status"] = {"phase": "Succeeded", "number": 9}
        api.put("gpujobs", api.objects["gpujobs"]["red/quick"])
        assert await waiting == "Succeeded"
    assert (shown[0].phase, shown[-1].phase, job.number, job.finished) == ("Queued", "Succeeded", 9, True)


async def test_a_wait_ends_after_its_time_with_the_reason(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "train")
        with pytest.raises(errors.WaitTimeoutError, match=r"red/train is not finished within 0 s: Job 1 is Running"):
            await side.call(job.wait, timeout_seconds=0)


async def test_a_job_is_held_released_reprioritized_cancelled_and_deleted(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "train")
        await side.call(job.hold)
        await side.call(job.set_priority, 30)
        await side.call(job.release)
        await side.call(job.cancel)
        spec = api.objects["gpujobs"]["red/train"]["spec"]
        assert (spec["suspend"], spec["priority"], spec["cancel"]) == (False, 30, True)
        await side.call(job.delete)
        await side.call(job.delete)
    assert "red/train" not in api.objects["gpujobs"]


async def test_a_job_explains_itself_and_lists_its_events(side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "train")
        found = await side.call(job.explain)
        events = await side.call(job.events)
        status = await side.call(job.status)
    assert str(found).startswith(found.summary)
    assert [event.reason for event in events] == ["Queued"]
    assert status["nodes"] == ["a"]


async def test_moves_are_planned_and_requested(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "train")
        found = await side.call(job.moves, willing=True)
        several = await side.call(client.moves, [job, job], willing=True)
        await side.call(job.set_moves, "Restart")
        await side.call(job.request_moves)
        spec = dict(api.objects["gpujobs"]["red/train"]["spec"])
        await side.call(job.request_moves, withdraw=True)
    assert str(found) == found.summary == "No moves for job 1 (train): it starts without moves"
    assert several == [found]
    assert (spec["moves"], "moveRequestTime" in spec) == ("Restart", True)
    assert api.objects["gpujobs"]["red/train"]["spec"].get("moveRequestTime") is None


def test_moves_name_their_jobs_and_say_only_if_asked_that_others_must_be_willing() -> None:
    client, asked = Client("http://127.0.0.1:1", token="t", namespace="red"), list[Any]()
    client._transport = SimpleNamespace(send=lambda call: asked.append(call) or SimpleNamespace(items=[None]))  # type: ignore[assignment]
    jobs = [Job(row("Queued", name=name), transport=client._transport) for name in "ab"]
    for willing in ({}, {"willing": True}):
        client.moves(jobs, **willing)
        jobs[0].moves(**willing)
    assert [dict(each.query) for each in asked] == [
        {"jobs": "red/a,red/b"}, {"jobs": "red/a"},
        {"jobs": "red/a,red/b", "willing": "true"}, {"jobs": "red/a", "willing": "true"},
    ]  # fmt: skip


async def test_a_right_size_is_accepted_and_withdrawn(api: GatewayApiServer, side: Side) -> None:
    device = {"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": 1000, "memoryMiB": 32768}
    status = {
        "phase": "Succeeded", "number": 9, "request": "1", "devices": [device],
        "memory": {"strategy": "Dynamic", "basis": "", "peakMiB": 5000},
        "measured": {"meanUtilization": 0.1, "deviceSeconds": 3600},
    }  # fmt: skip
    api.put("gpujobs", make_job("wide", namespace="red", number=9, status=status))
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "wide")
        await side.call(job.accept_right_size)
        spec = dict(api.objects["gpujobs"]["red/wide"]["spec"])
        await side.call(job.accept_right_size, withdraw=True)
    assert spec["rightSize"] == "6G,0.2"
    assert api.objects["gpujobs"]["red/wide"]["spec"].get("rightSize") is None


async def test_effects_say_what_a_change_would_do_and_change_nothing(api: GatewayApiServer, side: Side) -> None:
    waits = {"phase": "Queued", "number": 9, "gpus": 1, "reason": "Dependency", "message": "Waits for train"}
    after = make_job("after", namespace="red", number=9, status=waits, dependencies=[{"name": "train"}])
    api.put("gpujobs", after)
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "train")
        found = await side.call(job.effects, cancel=True)
        with pytest.raises(errors.InvalidError, match="priority"):
            await side.call(job.effects, priority=256)
    assert [(each.job.name, each.after) for each in found.cancelled] == [("after", "train")]
    assert not api.objects["gpujobs"]["red/train"]["spec"].get("cancel")


async def test_a_log_is_read_and_followed_line_by_line(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(client.job, "train")
        assert await side.all(job.logs(tail=5)) == ["lines of train-0"]
        api.log_ends.set()
        assert await side.all(job.logs(follow=True)) == ["lines of train-0", "the last line"]
        with pytest.raises(errors.InvalidError, match="worker=1: this job has 1, counted from 0"):
            await side.all(job.logs(worker=1))
    assert api.log_queries[0]["tailLines"] == "5"


async def test_jobs_come_from_all_pages(api: GatewayApiServer, side: Side, gateway: Face) -> None:
    for number in range(250):
        api.put("gpujobs", make_job(f"many-{number:03d}", namespace="red", number=number + 10))
    await until(lambda: len(gateway.made.cache.jobs) == 252)
    async with side.inside(side.client()) as client:
        found = await side.all(client.jobs(namespace="red"))
    assert len({job.name for job in found}) == 251


async def test_a_dry_run_answers_from_the_queue(side: Side) -> None:
    async with side.inside(side.client()) as client:
        fits = await side.call(client.dry_run, "8")
        never = await side.call(client.dry_run, "9")
    assert (fits.outcome, [share.node for share in fits.nodes]) == ("Starts", ["b"])
    assert never.outcome == "Never"
    assert "8" in never.message


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a request that cannot be read": ({"gpu": "2(V100"}, 'gpu "2(V100": a bracket is not closed'),
    "a truth value as a number": ({"gpu": True}, "gpu True: write for example 2, 0.5 or 2(V100)"),
    "a command in one text": ({"command": "python train.py"}, "command: a list of words"),
    "a name with capitals": ({"name": "Mine"}, 'name "Mine": at most 63 lower-case letters'),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_used_is_refused_before_it_is_sent(api: GatewayApiServer, side: Side, case: str) -> None:
    options, message = REFUSED[case]
    asked = {"command": ["true"], "image": "busybox", **options}
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.InvalidError) as caught:
            await side.call(client.submit, **asked)
    assert message in str(caught.value)
    assert not [each for each in api.requests if each[1] == "create"]


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_that_would_be_another_path_is_refused(side: Side, name: str) -> None:
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.InvalidError, match="is no name of an object"):
            await side.call(client.job, name)


async def test_refusals_have_their_own_errors_with_the_gateways_sentence(side: Side) -> None:
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.NotFoundError, match="there is no GPUJob nothing in namespace red that you may list"):
            await side.call(client.job, "nothing")
        with pytest.raises(errors.ForbiddenError, match='cannot create resource "gpujobs"'):
            await side.call(client.submit, ["true"], image="busybox", namespace="canaryns")
    async with side.inside(side.client(token="wrong")) as client:
        with pytest.raises(errors.UnauthorizedError, match="the API server does not accept the token"):
            await side.call(client.me)
    async with side.inside(side.client(token="")) as client:
        with pytest.raises(errors.UnauthorizedError, match="send a token"):
            await side.call(client.me)


async def test_a_token_is_read_again_for_each_request(side: Side) -> None:
    tokens = iter(["red-token", "admin-token"])
    async with side.inside(side.client(token=lambda: next(tokens))) as client:
        assert (await side.call(client.me)).username == "rita"
        assert (await side.call(client.me)).username == "admin"


async def test_the_blocking_client_works_inside_a_running_loop(gateway: Face) -> None:
    async def in_a_notebook() -> str:
        with Client(gateway.url, token="red-token") as client:
            return client.me().username

    assert await asyncio.to_thread(asyncio.run, in_a_notebook()) == "rita"


async def test_what_the_gateway_lists_has_the_types_of_its_answers(api: GatewayApiServer, side: Side) -> None:
    api.put("gpuquotas", {"metadata": {"name": "team"}, "spec": {"namespaces": ["red"], "limit": {"gpus": 4}}})
    runs = {"phase": "Running", "number": 9, "startTime": "2026-11-01T10:00:00Z", "nodes": ["a"]}
    api.put("gpujobs", make_job("runs", namespace="red", number=9, status=runs))
    async with side.inside(side.client()) as client:
        (quota,) = await side.call(client.quotas)
        plan = await side.all(client.plan(namespace="red"))
        sizes = await side.all(client.right_sizes())
        findings = await side.call(client.findings)
        proof = await side.call(client.audit)
    assert (quota.name, quota.gpus_limit) == ("team", 4.0)
    assert [(row.name, row.starts_at) for row in plan] == [("runs", "2026-11-01T10:00:00Z")]
    assert (sizes, findings.total, proof.findings, proof.devices) == ([], len(findings.items), 0, 16)


async def test_the_history_is_of_the_client_s_namespace(side: Side) -> None:
    async with side.inside(side.client()) as client:
        records = await side.all(client.history(since="2026-01-01T00:00:00Z"))
        with pytest.raises(errors.InvalidError, match="since"):
            await side.all(client.history(since="2026-13-01T00:00:00Z"))
    assert {record.namespace for record in records} <= {"red"}


async def test_without_a_history_the_error_says_so(api: GatewayApiServer, side: Side) -> None:
    said = NO_HISTORY()
    api.answer = {"answered": True, "message": said.message, "details": msgspec.to_builtins(said.listed)}
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.RefusedError) as refused:
            await side.all(client.history())
    assert (refused.value.reason, refused.value.message) == ("History", said.message)
    assert [each.code for each in refused.value.details] == ["NoHistory"]


async def test_each_filter_of_jobs_reaches_the_gateway(api: GatewayApiServer, side: Side, gateway: Face) -> None:
    for number, (name, phase) in enumerate((("waits", "Queued"), ("over", "Failed"), ("runs", "Running")), start=10):
        status = {"phase": phase, "number": number}
        api.put("gpujobs", make_job(name, namespace="red", number=number, status=status))
    await until(lambda: len(gateway.made.cache.jobs) >= 5)
    async with side.inside(side.client()) as client:
        by_phase = {job.name for job in await side.all(client.jobs(phase="Failed"))}
        unfinished = {job.name for job in await side.all(client.jobs(namespace="red", unfinished=True))}
        of_no_one = await side.all(client.jobs(user="no one"))
    assert by_phase == {"over"}
    assert unfinished == {"train", "waits", "runs"}
    assert of_no_one == []


async def test_a_clients_namespace_is_that_of_what_names_none(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client(namespace="canaryns", token="admin-token")) as client:
        made = await side.call(client.submit, ["true"], image="busybox", name="mine")
        other = await side.call(client.submit, ["true"], image="busybox", name="other", namespace="red")
        found = await side.call(client.job, "train", namespace="red")
        assert client.allocation()._namespace == "canaryns"
        assert client.allocation(namespace="red")._namespace == "red"
    assert [made.namespace, other.namespace, found.namespace] == ["canaryns", "red", "red"]


async def test_one_key_is_one_job_and_no_key_is_another(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        first, again, other, without = [
            await side.call(client.submit, ["true"], image="busybox", **options)
            for options in ({"key": "k"}, {"key": "k"}, {"key": "another"}, {})
        ]
    assert first.name == again.name
    assert len({first.name, other.name, without.name}) == 3


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"cpu_fallback": True}, "onNoGPU", "RunOnCPU"),
        ({"cpu_fallback": True}, "onNoGPUAfterSeconds", None),
        ({"cpu_fallback_after_seconds": 0}, "onNoGPU", "RunOnCPU"),
        ({"cpu_fallback_after_seconds": 0}, "onNoGPUAfterSeconds", 0),
        ({}, "onNoGPU", None),
        ({}, "activeDeadlineSeconds", None),
        ({"gpu": 0.5}, "gpu", "0.5"),
        ({"gpu": 2}, "gpu", 2),
        ({"workers": 3}, "workers", 3),
        ({"retries": 2}, "backoffLimit", 2),
        ({"depends_on": ["a"]}, "dependencies", [{"name": "a"}]),
        ({"depends_on": []}, "dependencies", None),
        ({"spec": {"group": "g"}}, "group", "g"),
        ({"spec": {"priority": 99}}, "priority", 99),
    ],
)
def test_what_is_asked_of_a_job_is_in_its_spec_and_nothing_else(
    options: dict[str, Any], field: str, value: Any
) -> None:
    usual: dict[str, Any] = {
        "image": "", "gpu": 1, "environment": {}, "priority": 10, "workers": 1, "time_limit_seconds": None,
        "cpu_fallback": False, "cpu_fallback_after_seconds": None,
    }  # fmt: skip
    asked: Any = usual | options
    spec = specs.asked(["true"], options=asked)
    assert specs.asked(["true"], options=options) == spec  # type: ignore[arg-type] # each test names its own
    assert spec.get(field) == value
    assert "image" not in spec["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("name", "fits"), [("a" * 63, True), ("a" * 64, False), ("a-", False), ("-a", False), ("0", True), ("a.b", False)]
)
def test_a_name_is_one_that_kubernetes_takes(name: str, fits: bool) -> None:
    if fits:
        assert specs.checked_name(name) == name
    else:
        with pytest.raises(errors.InvalidError, match="at most 63 lower-case letters, digits and hyphens"):
            specs.checked_name(name)


@pytest.mark.parametrize(("seconds", "fits"), [(29, False), (30, True), (1 << 31, True), ((1 << 31) + 1, False)])
def test_a_lease_is_as_long_as_the_api_allows(seconds: int, fits: bool) -> None:
    if fits:
        found = specs.reservation(2, lease_seconds=seconds, priority=5, workers=3)
        expected = {"gpu": 2, "workers": 3, "priority": 5, "reservation": {"durationSeconds": seconds}}
        assert found == expected
    else:
        with pytest.raises(errors.InvalidError, match=f"lease_seconds {seconds}: 30 to"):
            specs.reservation(2, lease_seconds=seconds, priority=5, workers=3)


async def test_a_function_travels_in_the_command_of_its_job(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        job = await side.call(client.submit, len, "abc", image="python:3.11", gpu=0, name="call")
        more = {"name": "calls", "spec": {"priority": 9}}
        mapped = await side.call(client.map, len, ["a", "bb"], image="python:3.11", at_once=1, **more)
    spec = api.objects["gpujobs"]["red/call"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"][:2] == ["python3", "-c"]
    assert container["command"][3] == "-"
    assert "workingDir" not in container
    assert (job.name, len(mapped)) == ("call", 2)
    spec = api.objects["gpujobs"]["red/calls"]["spec"]
    assert (spec["array"], spec["priority"]) == ({"indexes": "0-1", "parallelism": 1}, 9)


@pytest.mark.parametrize(
    ("method", "arguments", "options", "message"),
    [
        ("submit", (["echo"], "hello"), {}, "arguments are for a function; a command is one list of words"),
        ("submit", (["echo"],), {"python": "python3"}, "arguments are for a function"),
        ("map", (len, []), {}, "map: there is no element"),
        ("map", (len, ["a"]), {"workers": 2}, "map: each call is one worker"),
        ("map", (len, ["a"]), {"spec": {"array": {"indexes": "5"}}}, "spec has array, and the calls of a function are"),
        ("submit", (len, "a"), {"spec": {"array": {"indexes": "5"}}}, "spec has array"),
        ("submit", (len, "a"), {"spec": {"sweep": {}}}, "spec has sweep"),
    ],
)
async def test_what_cannot_be_called_is_refused(
    api: GatewayApiServer, side: Side, method: str, arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.InvalidError, match=message) as refused:
            await side.call(getattr(client, method), *arguments, **options)
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")
    assert not [each for each in api.requests if each[1] == "create"]
