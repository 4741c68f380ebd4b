"""`dovetail quota plan`: the file that it reads, and the sentences that it prints."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from dovetail.answers.quotas import EndedJob, QuotaChange, QuotaPlan
from dovetail_cli import app
from dovetail_cli.nodes import quota_plan
from dovetail_cli.nodes.quota_plan import read, rows, sentences
from dovetail_cli.ui.errors import MissingError, UsageError

ROOT = Path(__file__).parents[3]
QUOTA = "apiVersion: dovetail.dev/v1beta1\nkind: GPUQuota\n"
DAY = 'name: day, start: "08:00", end: "20:00", gpus: 4'
EXAM = ("2030-02-01T08:00:00Z", "2030-02-01T12:00:00Z")
NAMED = f"{QUOTA}metadata: {{name: q}}\n"


def test_the_example_of_serving_is_read() -> None:
    (found,) = read(str(ROOT / "examples" / "serving.yaml"))
    assert [each.time_zone for each in found.spec.guarantee_windows] == ["Europe/Berlin"]


def test_the_example_of_three_departments_is_read() -> None:
    found = read(str(ROOT / "examples" / "departments.yaml"))
    assert [quota.metadata.name for quota in found][:2] == ["research", "research-vision"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no GPUQuota"),
        ("a: [", "expected YAML or JSON"),
        ("kind: Pod\napiVersion: v1\n", "document 1 must be a GPUQuota"),
        (f"{QUOTA}metadata: {{}}\n", "document 1 has no metadata.name"),
        (f"{QUOTA}metadata: {{name: q}}\n", "GPUQuota q has no spec"),
        (f"{QUOTA}metadata: {{name: A_B}}\nspec: {{}}\n", "metadata.name must be up to 253 of a-z, 0-9"),
        (f"{NAMED}spec: {{}}\n---\n{NAMED}spec: {{}}\n", "GPUQuota q is in it twice, and only one of them can count"),
        (
            f"{NAMED}spec: {{}}\n---\n{QUOTA}metadata: {{name: a}}\nspec: {{}}\n---\n{NAMED}spec: {{}}\n",
            "GPUQuota q is in it twice, and only one of them can count",
        ),
        (f"{NAMED}spec: {{shares: !!int abc}}\n", "expected YAML or JSON .a value does not suit its tag"),
        (f"{NAMED}spec: {{shares: {'9' * 5000}}}\n", "expected YAML or JSON .a value does not suit its tag"),
        (QUOTA.replace("v1beta1", "v1alpha1"), "document 1 must be a GPUQuota of dovetail.dev/v1beta1"),
    ],
)
def test_another_file_is_refused_with_its_problem(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem):
        read(str(path))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("garanteed: {gpus: 1}", 'unknown field "spec.garanteed"; did you mean "guaranteed"?'),
        ("limit: {runingJobs: 1}", 'unknown field "spec.limit.runingJobs"; did you mean "runningJobs"?'),
        ("gpus: 4", 'unknown field "spec.gpus"; the fields are namespaces, users'),
        ("limit: 4", "spec.limit 4: must be an object"),
        (
            "guaranteed: {gpus: many}",
            'spec.guaranteed.gpus "many": must be a whole number from 0 to 1000000',
        ),
        ("guaranteed: {gpus: -1}", "spec.guaranteed.gpus -1: must be a whole number from 0 to 1000000"),
        ("limit: {models: {A100: x}}", 'spec.limit.models.A100 "x": must be a whole number from 0'),
        ("guaranteed: {memory: 64}", "spec.guaranteed.memory 64: must be a text"),
        ("guaranteed: {memory: 64Q}", 'spec.guaranteed.memory "64Q": must be an amount of device memory'),
        ("per: Team", 'spec.per "Team": must be one of Namespace, Together, User'),
        ("namespaces: [Team A]", 'spec.namespaces[0] "Team A": must be of a-z, 0-9'),
        ("users: ['']", 'spec.users[0] "": must have 1 to 253 characters'),
        ("advanceReservations: [{name: a, gpus: 1}]", "spec.advanceReservations[0]: startTime is missing"),
        ("{per: User, parent: p}", "spec.per User: must be Together with a parent or a guarantee"),
        ("parent: q", "spec.parent q: must be another quota (the path would be q > q)"),
        (
            "{guaranteed: {gpus: 9}, limit: {gpus: 4}}",
            "spec.guaranteed.gpus 9: must not be above the limit of 4 GPUs: raise the limit or lower the guarantee",
        ),
        (
            f"guaranteeWindows: [{{{DAY.replace('08:00', '8')}}}]",
            'spec.guaranteeWindows[0].start "8": must be a time of',
        ),
        (
            f"guaranteeWindows: [{{{DAY}, days: [Mon]}}]",
            'spec.guaranteeWindows[0].days[0] "Mon": must be one of Friday,',
        ),
        (
            f"guaranteeWindows: [{{{DAY}, timeZone: Europe/Berln}}]",
            "spec.guaranteeWindows[0].timeZone Europe/Berln: there is no such time zone; name one such as",
        ),
        (
            f"{{guaranteeWindows: [{{{DAY}}}], limit: {{gpus: 3}}}}",
            "spec.guaranteeWindows[0].gpus 4: must not be above the limit of 3 GPUs",
        ),
        (f"{{guaranteeWindows: [{{{DAY}}}], per: User}}", "spec.per User: must be Together with guaranteeWindows or"),
        (
            "{forecast: {gpus: 4}, per: User}",
            "spec.per User: must be Together with a forecast, which is for all of them",
        ),
        ("{forecast: {gpus: 9}, limit: {gpus: 8}}", "spec.forecast.gpus 9: must not be above the limit of 8 GPUs"),
        (
            "forecast: {gpus: 9, timeZone: Europe/Berln}",
            "spec.forecast.timeZone Europe/Berln: there is no such time zone; name one such as Europe/Berlin",
        ),
        ("forecast: {timeZone: UTC}", "spec.forecast: gpus is missing"),
        ("forecast: {gpus: 9, marginPercent: 200}", "spec.forecast.marginPercent 200: must be"),
        ("reserve: {gpus: 2}", "spec.reserve: is a part of the guarantee: set guaranteed.gpus or guaranteeWindows"),
        (
            "{guaranteed: {gpus: 4}, reserve: {gpus: 3, gpusPerReplica: 2}}",
            "spec.reserve.gpus 3: must be a multiple of gpusPerReplica 2",
        ),
        ('namespaces: ["a\\n"]', "must be of a-z, 0-9 and '-'"),
    ],
)
def test_what_the_api_server_refuses_is_refused_with_the_path_and_the_value(
    tmp_path: Path, spec: str, problem: str
) -> None:
    path = tmp_path / "quotas.yaml"
    spec = spec if spec.startswith("{") else f"{{{spec}}}"
    path.write_text(f"{NAMED}spec: {spec}\n")
    with pytest.raises(UsageError) as refused:
        read(str(path))
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "times", "problem"),
    [
        ("", EXAM, "spec.advanceReservations: namespaces, users or projects must say for whom GPUs are kept"),
        ("per: User, users: [ada]", EXAM, "spec.per User: must be Together with spec.advanceReservations"),
        (
            "users: [ada]",
            EXAM[::-1],
            "spec.advanceReservations[0].endTime 2030-02-01T08:00:00Z: must be after startTime 2030-02-01T12:00:00Z",
        ),
        ("users: [ada]", ("2030-02-31T08:00:00Z", EXAM[1]), '"2030-02-31T08:00:00Z": there is no such day or time'),
        ("users: [ada]", ("2030-02-01T08:99:00Z", EXAM[1]), '"2030-02-01T08:99:00Z": there is no such day or time'),
        ("users: [ada]", (*EXAM, *EXAM), 'spec.advanceReservations[1]: name "exam" is in the list twice'),
    ],
)
def test_advance_reservations_that_the_api_server_refuses_are_refused(
    tmp_path: Path, spec: str, times: tuple[str, ...], problem: str
) -> None:
    path = tmp_path / "quotas.yaml"
    windows = [
        f"{{name: exam, gpus: 1, startTime: {a}, endTime: {b}}}" for a, b in zip(times[::2], times[1::2], strict=True)
    ]
    fields = ", ".join(filter(None, [spec, f"advanceReservations: [{', '.join(windows)}]"]))
    path.write_text(f"{NAMED}spec: {{{fields}}}\n")
    with pytest.raises(UsageError) as refused:
        read(str(path))
    assert problem in str(refused.value)


def test_times_without_quotes_are_read_as_kubectl_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    window = f"{{name: exam, gpus: 1, startTime: {EXAM[0]}, endTime: {EXAM[1]}}}"
    path.write_text(f"{NAMED}spec: {{users: [ada], advanceReservations: [{window}]}}\n")
    (quota,) = read(str(path))
    assert [(each.start_time, each.end_time) for each in quota.spec.advance_reservations] == [EXAM]


def test_an_empty_field_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(f"{NAMED}spec: {{parent: null, limit: {{gpus: 2}}}}\n")
    (quota,) = read(str(path))
    assert (quota.spec.parent, quota.spec.limits.gpus) == (None, 2)


def test_the_example_of_quotas_keeps_all_its_limits() -> None:
    vision, each_user, course = (quota.spec for quota in read(str(ROOT / "examples" / "quota.yaml")))
    assert (vision.limits.gpus, vision.limits.running_jobs, vision.limits.queued_jobs) == (8, 20, 100)
    assert each_user.limits.running_jobs == 10
    assert [(each.name, each.start_time) for each in course.advance_reservations] == [("exam", "2030-02-01T08:00:00Z")]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(MissingError, match="there is no such file"):
        read("/nowhere.yaml")


def test_the_plan_says_who_ends_and_who_starts() -> None:
    found = QuotaPlan(
        quotas=[QuotaChange(name="team", before=None, after=4, used=1, memory=None)],
        contradictions=[],
        starts=["team/b"],
        waits=["idle/c"],
        ends=[EndedJob(job="idle/a", by="team/b", reason="Is ended for GPUQuota team")],
        is_refused=False,
    )
    assert list(rows(found)) == [{"QUOTA": "team", "GUARANTEED": "-", "WOULD_BE": "4", "USED": "1"}]
    assert list(sentences(found)) == [
        "idle/a would be ended for team/b: Is ended for GPUQuota team.",
        "Would start now: team/b.",
        "Would no longer start now: idle/c.",
    ]


@pytest.mark.parametrize("said", [(), *itertools.combinations(("contradictions", "starts", "waits", "ends"), 1)])
def test_that_nothing_happens_is_said_only_where_nothing_does(said: tuple[str, ...]) -> None:
    everything = {
        "contradictions": ["too much"],
        "starts": ["a/b"],
        "waits": ["a/c"],
        "ends": [EndedJob(job="a/d", by="a/b", reason="why")],
    }
    parts: dict[str, Any] = {name: its if name in said else [] for name, its in everything.items()}
    found = list(sentences(QuotaPlan(quotas=[], is_refused=False, **parts)))
    assert (found == ["No contradictions, and no job starts or ends because of it now."]) is not bool(said)
    assert len(found) == 1


@pytest.mark.parametrize(("is_refused", "code"), [(True, 1), (False, 0)])
def test_quotas_that_contradict_each_other_end_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_refused: bool, code: int
) -> None:
    monkeypatch.setattr(quota_plan, "show", lambda _file, **_options: ("the plan", is_refused))
    assert app.main(["quota", "plan", "quotas.yaml"]) == code
    assert capsys.readouterr().out == "the plan\n"


def test_the_items_of_a_list_are_quotas_of_their_own(tmp_path: Path) -> None:
    """As kubectl writes several objects."""
    item = "{apiVersion: dovetail.dev/v1beta1, kind: GPUQuota, metadata: {name: %s}, spec: {}}"
    text = f"apiVersion: v1\nkind: List\nitems: [{item % 'a'}, {item % 'b'}]\n---\n{NAMED}spec: {{}}\n"
    (tmp_path / "quotas.yaml").write_text(text)
    assert [quota.metadata.name for quota in read(str(tmp_path / "quotas.yaml"))] == ["a", "b", "q"]
