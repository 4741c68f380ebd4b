"""Addresses of the console that the command refuses."""

import pytest

from dovetail_cli import app


@pytest.mark.parametrize("url", ["ftp://x", "gpu.example", "javascript:alert(1)"])
def test_a_gateway_that_is_not_of_http_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["console", "--gateway", url]) == 2
    assert f'--gateway "{url}": must begin with http:// or https://' in capsys.readouterr().err
