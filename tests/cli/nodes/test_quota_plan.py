"""`dovetail quota plan`: the file that it reads, and the sentences that it prints."""

from pathlib import Path

import pytest

from dovetail.query.quota_plan import EndedJob, QuotaChange, QuotaPlan
from dovetail_cli.nodes.quota_plan import read, rows, sentences
from dovetail_cli.ui.errors import MissingError, UsageError

ROOT = Path(__file__).parents[3]
QUOTA = "apiVersion: dovetail.dev/v1alpha1\nkind: GPUQuota\n"


def test_the_example_of_three_departments_is_read() -> None:
    found = read(str(ROOT / "examples" / "departments.yaml"))
    assert [quota.metadata.name for quota in found][:2] == ["research", "research-vision"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no GPUQuota"),
        ("a: [", "expected YAML or JSON"),
        ("kind: Pod\napiVersion: v1\n", "document 1 must be a GPUQuota"),
        (f"{QUOTA}metadata: {{name: q}}\nspec: {{guaranteed: {{gpus: many}}}}\n", "document 1: Expected `int"),
        (f"{QUOTA}metadata: {{}}\n", "document 1 has no metadata.name"),
        (QUOTA.replace("alpha1", "beta1") + "spec: {limit: 4}\n", "document 1: spec.limit 4: expected an object"),
        (QUOTA.replace("alpha1", "beta9"), "GPUQuota of dovetail.dev/v1alpha1 or dovetail.dev/v1beta1"),
    ],
)
def test_another_file_is_refused_with_its_problem(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem):
        read(str(path))


def test_the_example_of_quotas_keeps_all_its_limits() -> None:
    vision, each_user, course = (quota.spec for quota in read(str(ROOT / "examples" / "quota.yaml")))
    assert (vision.most.gpus, vision.running_jobs, vision.queued_jobs, each_user.running_jobs) == (8, 20, 100, 10)
    assert [(each.name, each.start) for each in course.reservations] == [("exam", "2030-02-01T08:00:00Z")]


def test_quotas_of_both_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    beta = QUOTA.replace("alpha1", "beta1")
    path.write_text(
        f"{QUOTA}metadata: {{name: a}}\nspec: {{limit: {{gpus: 4}}, runningJobs: 3}}\n---\n"
        f"{beta}metadata: {{name: b}}\nspec: {{limit: {{gpus: 4, runningJobs: 3}}}}\n"
    )
    one, other = read(str(path))
    assert one.spec == other.spec


def test_a_missing_file_is_named() -> None:
    with pytest.raises(MissingError, match="there is no such file"):
        read("/nowhere.yaml")


def test_the_plan_says_who_ends_and_who_starts() -> None:
    found = QuotaPlan(
        quotas=[QuotaChange(name="team", before=None, after=4, used=1)],
        contradictions=[],
        starts=["team/b"],
        waits=["idle/c"],
        ends=[EndedJob(job="idle/a", by="team/b", reason="Is ended for GPUQuota team")],
    )
    assert list(rows(found)) == [{"QUOTA": "team", "GUARANTEED": "-", "WOULD_BE": "4", "USED": "1"}]
    assert list(sentences(found)) == [
        "idle/a would be ended for team/b: Is ended for GPUQuota team.",
        "Would start now: team/b.",
        "Would no longer start now: idle/c.",
    ]
