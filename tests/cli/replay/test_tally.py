from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.answers.questions import Audit, Finding
from dovetail.query.jobs.columns import View
from dovetail_cli.demo import live_view
from dovetail_cli.replay import progress
from dovetail_cli.replay.campaign import Ended
from dovetail_cli.replay.device_holders import held_devices
from dovetail_cli.replay.report import Summary, summarise
from dovetail_cli.replay.tally import Tally, quantile
from tests.cli.builders import NOW, ago, make_gpunode, make_job


def make_tally(*names: str) -> Tally:
    tally = Tally(jobs=len(names), nodes={"a": make_gpunode("a").status.devices})
    for at, name in enumerate(names):
        tally.submitted(name, at=float(at))
    return tally


def test_a_job_that_the_watch_has_not_told_of_yet_waits() -> None:
    standing = make_tally("x").counts()
    assert (standing.waiting, standing.done) == (1, False)


def test_a_campaign_is_done_when_the_rest_can_never_fit() -> None:
    tally = make_tally("x", "y", "z")
    tally.saw(make_job("x", phase="Succeeded"), at=1)
    tally.saw(make_job("y", phase="Failed"), at=2)
    tally.saw(make_job("z", phase="Queued", reason="Resources"), at=2)
    assert not tally.counts().done
    tally.saw(make_job("z", phase="Queued", reason="ExceedsCapacity"), at=3)
    standing = tally.counts()
    assert standing.done
    assert (standing.succeeded, standing.failed, standing.hopeless) == (1, 1, 1)


def test_a_job_that_somebody_deletes_has_failed() -> None:
    tally = make_tally("x")
    tally.saw(make_job("x", phase="Running"), at=1)
    tally.gone("x")
    assert (tally.counts().failed, tally.counts().done) == (1, True)


def test_it_is_not_done_before_all_are_submitted() -> None:
    tally = Tally(jobs=2, nodes={})
    tally.submitted("x", at=0)
    tally.saw(make_job("x", phase="Succeeded"), at=1)
    assert not tally.counts().done


def test_a_wait_lasts_from_the_submission_to_the_first_node() -> None:
    tally = make_tally("x", "y")
    tally.saw(make_job("x", phase="Queued", reason="Resources"), at=2)
    tally.saw(make_job("x", phase="Starting", nodes=["a"]), at=5)
    tally.saw(make_job("x", phase="Running", nodes=["a"]), at=7)
    assert tally.waits_seconds == [5]


def test_allocation_is_a_peak_and_a_mean_over_time() -> None:
    tally = make_tally("x")
    tally.saw(make_job("x", phase="Running", devices=[("a", 0), ("a", 1, 500)]), at=0)
    tally.sample(at=0)
    tally.saw(make_job("x", phase="Succeeded", devices=[("a", 0)]), at=1)
    tally.sample(at=1)
    tally.sample(at=4)
    assert (tally.peak_ratio, tally.mean_ratio) == (0.75, 0.1875)


def test_a_device_whose_last_holder_has_not_said_yet_that_it_ended_is_counted_once() -> None:
    tally = make_tally("x", "y")
    for number, name in enumerate(["x", "y"], start=1):
        running = {"phase": "Running", "admitted_time": ago(seconds=-number)}
        tally.saw(make_job(name, number=number, devices=[("a", 0), ("a", 1)], **running), at=number)
    tally.sample(at=2)
    assert tally.peak_ratio == 1
    assert live_view.grid(tally) == ["a  ■■  V100"]
    assert live_view.node_table(tally.nodes, jobs=tally.seen.values()).splitlines()[1].endswith("0: job 2; 1: job 2")


def test_shares_beside_each_other_all_count() -> None:
    tally = make_tally("x", "y", "z")
    for number, (name, share) in enumerate([("x", 500), ("y", 300), ("z", 200)], start=1):
        tally.saw(make_job(name, number=number, phase="Running", devices=[("a", 0, share)]), at=1)
    assert (tally.counts().allocated_milli, len(held_devices(tally.seen.values())["a", 0])) == (1000, 3)


def test_a_device_whose_tenants_take_turns_is_held_whole_at_most() -> None:
    tally = make_tally("x", "y")
    for number, name in enumerate(["x", "y"], start=1):
        job = make_job(name, number=number, phase="Running", devices=[("a", 0, 800)])
        tally.saw(replace(job, spec=replace(job.spec, mode="TimeShared")), at=1)
    assert tally.counts().allocated_milli == 1000
    assert held_devices(tally.seen.values()) == {("a", 0): [(1, 800), (2, 800)]}


@given(values=st.lists(st.integers(0, 9), min_size=1), percent=st.integers(1, 100))
def test_a_quantile_is_the_first_value_that_so_many_do_not_exceed(values: list[int], percent: int) -> None:
    ordered = sorted(map(float, values))
    enough = [value for value in ordered if 100 * sum(each <= value for each in ordered) >= percent * len(ordered)]
    assert quantile(ordered, ratio=percent / 100) == enough[0]


def test_no_values_have_no_quantile() -> None:
    assert quantile([], ratio=0.5) is None


def summary(*, problem: str = "", findings: list[Finding] | None = None, z: dict[str, Any] | None = None) -> Summary:
    tally = make_tally("x", "y", "z")
    tally.saw(make_job("x", phase="Succeeded", nodes=["a"]), at=4)
    tally.saw(make_job("y", phase="Succeeded", nodes=["a"]), at=11)
    tally.saw(make_job("z", phase="Queued", **(z or {"reason": "ExceedsCapacity", "message": "Need 9 GPUs"})), at=4)
    items = findings or []
    audit = Audit(pods=0, devices=2, findings=len(items), items=items, notes=[])
    return summarise(Ended(tally=tally, audits=[audit], seconds=83.2, problem=problem))


def test_the_summary_says_all_that_a_replay_is_asked_for() -> None:
    assert summary().text(title="Replay") == (
        "Replay: 3 jobs on 2 GPUs in 83 s\n"
        "  placed      2 of 3, 0.2 pods/s\n"
        "  submitted   2/s\n"
        "  ended       2 succeeded, 0 failed\n"
        "  waiting     1 (ExceedsCapacity 1)\n"
        "  allocation  peak 0%, mean 0% of the GPUs' compute\n"
        "  waits       p50 4.0 s, p95 10 s\n"
        "  audit       clean (1 look)\n"
        "  never placed:\n"
        "    z  ExceedsCapacity: Need 9 GPUs"
    )


FINDING = Finding(kind="NotSole", subject="a/0", message="two hold it")


@pytest.mark.parametrize(
    ("changes", "good", "told"),
    [
        ({}, True, "audit       clean"),
        ({"findings": [FINDING]}, False, "1 findings, the first: NotSole a/0: two hold it"),
        ({"problem": "interrupted"}, False, "ended early: interrupted"),
        ({"z": {"reason": "Resources", "message": "Need 1 GPU"}}, False, "waiting     1 (Resources 1)"),
    ],
)
def test_it_is_good_only_when_nothing_is_left_undone(changes: dict[str, Any], good: bool, told: str) -> None:
    found = summary(**changes)
    assert found.good is good
    assert found.record()["good"] is good
    assert told in found.text(title="Replay")


def test_a_long_list_of_waiting_jobs_is_cut() -> None:
    tally = make_tally(*map(str, range(25)))
    for name in list(tally.submitted_at):
        tally.saw(make_job(name, phase="Queued", reason="Resources"), at=1)
    text = summarise(Ended(tally=tally, audits=[], seconds=1)).text(title="Replay")
    assert text.endswith("    and 5 more")
    assert "waits       none was placed" in text


def test_progress_is_one_sentence() -> None:
    tally = Tally(jobs=4, nodes={"a": make_gpunode("a").status.devices})
    for name in "xyz":
        tally.submitted(name, at=0)
    tally.saw(make_job("x", phase="Running", devices=[("a", 0)]), at=1)
    tally.saw(make_job("y", phase="Queued", reason="Resources"), at=1)
    tally.saw(make_job("z", phase="Failed"), at=1)
    assert progress.sentence(tally, standing=tally.counts()) == (
        "1 to submit, 1 wait (Resources 1), 1 run, 0 done, 1 failed; 50% of the GPUs allocated"
    )


def test_elsewhere_than_on_a_terminal_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    tally = make_tally("x")
    with progress.progress(title="Replay") as watch:
        watch(tally, tally.counts())
        watch(tally, tally.counts())
        tally.saw(make_job("x", phase="Succeeded"), at=1)
        watch(tally, tally.counts())
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        "1 wait (Evaluating 1), 0 run, 0 done; 0% of the GPUs allocated",
        "0 wait, 0 run, 1 done; 0% of the GPUs allocated",
    ]


def test_the_board_shows_a_sign_for_each_device() -> None:
    tally = make_tally("x", "y")
    tally.nodes = {"node-a": make_gpunode("a", gpus=3).status.devices, "b": make_gpunode("b").status.devices}
    tally.saw(make_job("x", number=1, phase="Running", devices=[("node-a", 0), ("node-a", 2, 300)]), at=1)
    tally.saw(make_job("y", number=2, phase="Running", devices=[("node-a", 2, 700)]), at=1)
    assert live_view.grid(tally) == ["node-a  ■□■  V100", "b       □□  V100"]
    tally.saw(make_job("y", phase="Succeeded", devices=[("node-a", 2, 700)]), at=2)
    assert live_view.grid(tally)[0] == "node-a  ■□◧  V100"


def test_the_first_that_wait_are_named_by_number_each_with_its_reason() -> None:
    names = [f"w{number}" for number in range(1, 8)]
    tally = make_tally("run", "new", *names)
    tally.saw(make_job("run", number=8, phase="Running", reason="Started", message="runs"), at=1)
    tally.saw(make_job("new", number=9, phase="Queued"), at=1)
    for number, name in reversed(list(enumerate(names, start=1))):
        tally.saw(make_job(name, number=number, phase="Queued", reason="Resources", message="Need 1 GPU"), at=1)
    first = [f"w{number}: Resources: Need 1 GPU" for number in range(1, 6)]
    assert live_view.waiting_lines(tally) == [*first, "and 2 more"]
    for name in names[5:]:
        tally.gone(name)
    assert live_view.waiting_lines(tally) == first


def test_a_demo_is_over_once_each_job_was_placed_or_never_can_be() -> None:
    tally = Tally(jobs=3, nodes={})
    for name, seen in {
        "x": {"phase": "Running", "nodes": ["a"]},
        "y": {"phase": "Queued", "reason": "ExceedsCapacity"},
        "z": {"phase": "Queued", "reason": "Resources"},
    }.items():
        tally.submitted(name, at=0)
        tally.saw(make_job(name, **seen), at=1)
        assert not live_view._all_placed(tally, tally.counts())
    tally.saw(make_job("z", phase="Succeeded", nodes=["a"]), at=2)
    assert live_view._all_placed(tally, tally.counts())


def test_a_demo_of_which_a_job_was_not_submitted_yet_goes_on() -> None:
    tally = Tally(jobs=2, nodes={})
    tally.submitted("x", at=0)
    for name in "xy":
        # The watch may tell of a job before the API server's answer to its submission is here.
        tally.saw(make_job(name, phase="Running", nodes=["a"]), at=1)
    assert not live_view._all_placed(tally, tally.counts())
    tally.submitted("y", at=2)
    assert live_view._all_placed(tally, tally.counts())


def test_the_tables_at_the_end_name_jobs_and_holders() -> None:
    jobs = [
        make_job("late", number=2, phase="Running", request="0.3", devices=[("a", 1, 300)], start_time=ago(seconds=4)),
        make_job("early", number=1, phase="Succeeded", request="1", devices=[("a", 0)]),
    ]
    assert live_view.job_table(jobs, view=View(now=NOW)).splitlines() == [
        "JOBID  NAME   ST  TIME      GPUS  NODELIST(REASON)",
        "1      early  CD  00:00:00  1     a:0",
        "2      late   R   00:00:04  0.3   a:1",
    ]
    assert live_view.node_table({"a": make_gpunode("a").status.devices}, jobs=jobs).splitlines() == [
        "NODE  MODEL  GPUS  FREE  DEVICES",
        "a     V100   2     1     1: job 2 (0.3)",
    ]


def test_the_first_of_those_that_wait_are_told_with_their_reasons() -> None:
    tally = make_tally(*map(str, range(7)))
    for number in range(7):
        tally.saw(
            make_job(str(number), number=9 - number, phase="Queued", reason="Resources", message="Need 1 GPU"), at=1
        )
    lines = live_view.waiting_lines(tally)
    assert lines[0] == "6: Resources: Need 1 GPU"
    assert lines[-1] == "and 2 more"


def test_the_hints_name_the_paths_that_a_shell_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    text = "\n".join(live_view.hints(kubeconfig="/k"))
    assert "export KUBECONFIG=/k" in text
    assert ":$PATH" in text
    assert "make demo-down" in text
