"""Where a replay runs, and what of it stays."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dovetail_cli.replay import runner
from dovetail_cli.replay.runner import Place


@pytest.mark.parametrize("keep", [True, False], ids=["to be kept", "not to be kept"])
@pytest.mark.parametrize("was_there", [True, False], ids=["of before", "new"])
@pytest.mark.parametrize("fails", [True, False], ids=["fails", "ends"])
def test_only_a_sandbox_that_the_replay_made_is_removed_and_not_one_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_there: bool, keep: bool, fails: bool
) -> None:
    config, done = tmp_path / "kubeconfig", list[str]()

    def up(name: str, **_: Any) -> None:
        done.append(f"up {name}")
        config.touch()

    if was_there:
        config.touch()
    monkeypatch.setattr("dovetail_cli.sandboxes.kubeconfig", lambda _name: config)
    monkeypatch.setattr("dovetail_cli.sandboxes.up", up)
    monkeypatch.setattr("dovetail_cli.sandboxes.down", lambda name: done.append(f"down {name}"))
    place = Place(namespace="n", sandbox="s", keep=keep)
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext(), _cluster_of(place) as found:
        assert found == str(config)
        if fails:
            raise KeyboardInterrupt
    assert done == (["up s"] if was_there or keep else ["up s", "down s"])


_cluster_of: Any = runner._cluster_of
