"""Addresses of the console that the command refuses."""

from functools import partial
from pathlib import Path

import pytest

from dovetail_cli import app, consoles
from dovetail_cli.ui.errors import NoConnectionError


@pytest.mark.parametrize("url", ["ftp://x", "gpu.example", "javascript:alert(1)"])
def test_a_gateway_that_is_not_of_http_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["console", "--gateway", url]) == 2
    assert f'--gateway "{url}": must begin with http:// or https://' in capsys.readouterr().err


def test_without_any_cluster_it_names_the_queue_of_this_machine_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for opened in (partial(consoles.open_local, port=None), partial(consoles.open_at, "https://gpu.example")):
        with pytest.raises(NoConnectionError, match=r"^there is no queue yet: `gflowd up` starts one on this machine"):
            opened(kubeconfig=None, context=None, browser=False)
