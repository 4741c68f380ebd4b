from pathlib import Path

import pytest

from dovetail_cli.completion import values
from tests.cli.ui.test_live_screen import KUBECONFIG
from tests.core.kube.api import Api
from tests.core.kube.conftest import api

__all__ = ["api"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dovetail" / "completion"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a person at the prompt has: a busy machine may need it for one answer."""
    monkeypatch.setattr(values, "_PATIENCE_SECONDS", 60.0)


@pytest.fixture
def kubeconfig(api: Api, tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    return str(file)
