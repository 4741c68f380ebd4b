"""docs/guides/backup.md, typed: what is backed up on one sandbox is restored on another."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail_sandbox import bringup, progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from tests.cluster.jobs import manifest
from tests.polling import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PAGE: Final = Path(__file__).parents[2] / "docs" / "guides" / "backup.md"
USER: Final = "ada@example.com"
OPERATOR: Final = "system:serviceaccount:dovetail-system:dovetail-operator"
SECONDS: Final = 120


class Site:
    """A sandbox, and the shell of its administrator."""

    def __init__(self, made: Cluster, *, folder: Path) -> None:
        self.made = made
        self._folder = folder
        kubectl = locate.resolve(["kubectl"], report=progress.Lines(sys.stderr))["kubectl"]
        path = f"{kubectl.parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(made.kubeconfig), "PATH": path}

    @property
    def history(self) -> Path:
        return self.made.folder / "volumes/dovetail-operator/history/history.db"

    def run(self, script: str, *, text: str = "") -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            input=text, env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stderr}"
        return done.stdout

    def submit(self, name: str, **spec: Any) -> None:
        body = manifest(name, **spec)
        body["metadata"]["annotations"] = {"dovetail.dev/user": USER}
        self.run(f"kubectl create --as={OPERATOR} -n default -f -", text=json.dumps(body))

    def jobs(self) -> dict[str, Any]:
        found = json.loads(self.run("kubectl get gpujobs -n default -o json"))
        return {each["metadata"]["name"]: each for each in found["items"]}

    def until(self, **phases: str) -> dict[str, Any]:
        def reached() -> bool:
            jobs = self.jobs()
            return {name: jobs.get(name, {}).get("status", {}).get("phase") for name in phases} == phases

        until(reached, what=self.jobs, seconds=SECONDS)
        return self.jobs()


def blocks(words: str) -> list[str]:
    """The shell blocks of the page that contain these words."""
    found: list[str] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    chosen = [each for each in found if words in each]
    assert chosen, f"no block of {PAGE.name} has {words!r}"
    return chosen


def records(database: Path) -> list[str]:
    if not database.exists():
        return []
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return (
            [row[0] for row in connection.execute("SELECT name FROM dovetail_jobs ORDER BY name")]
            if "dovetail_jobs" in tables
            else []
        )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "backup").mkdir()
    return tmp_path / "backup"


def up(name: str, *, folder: Path) -> Site:
    return Site(bringup.up(name, report=progress.Lines(sys.stderr), limit_nodes=1), folder=folder)


def test_jobs_quotas_numbers_and_history_are_restored_into_a_new_cluster(folder: Path) -> None:
    old = up("old", folder=folder)
    try:
        quota = {"apiVersion": "dovetail.dev/v1beta1", "kind": "GPUQuota", "metadata": {"name": "all"},
                 "spec": {"limit": {"gpus": 8}}}  # fmt: skip
        old.run("kubectl create -f -", text=json.dumps(quota))
        limits = json.loads(old.run("kubectl get gpuquota all -o json"))["spec"]
        old.submit("ended", run=1)
        old.until(ended="Succeeded")
        old.submit("runs", gpu=2)
        old.submit("waits", suspend=True)
        before = old.until(runs="Running", waits="Held")
        until(lambda: records(old.history) == ["ended", "runs"], what=lambda: records(old.history), seconds=SECONDS)
        (backup,) = blocks("> jobs.json")
        old.run(backup)
        old.made.stop("operator")
        # An operator that has ended has written everything into this one file.
        shutil.copy(old.history, folder / "history.db")
    finally:
        old.made.down()

    new = up("new", folder=folder)
    try:
        new.made.stop("operator")
        shutil.copy(folder / "history.db", new.history)
        for leftover in new.history.parent.glob("history.db-*"):
            leftover.unlink()
        (restore,) = blocks("-f jobs.json")
        new.run(restore)
        new.made.start("operator")
        after = new.until(runs="Running", waits="Held")
        assert set(after) == {"runs", "waits"}
        assert {each["metadata"]["annotations"]["dovetail.dev/user"] for each in after.values()} == {USER}
        last = max(each["status"]["number"] for each in before.values())
        assert [after[name]["status"]["number"] for name in ("runs", "waits")] == [last + 1, last + 2]
        assert json.loads(new.run("kubectl get gpuquota all -o json"))["spec"] == limits
        # The job that ran in the old cluster has a record of its own, and so has the restored one.
        until(
            lambda: records(new.history) == ["ended", "runs", "runs"],
            what=lambda: records(new.history),
            seconds=SECONDS,
        )
    finally:
        new.made.down()
