"""Where the gateway is and with which token: what is passed, else the environment, else the account of the pod."""

from pathlib import Path
from typing import Any

import pytest

from dovetail.sdk import errors
from dovetail.sdk.connection import connection

KNOWN = {"DOVETAIL_GATEWAY": "http://env:8000", "DOVETAIL_TOKEN": "env", "DOVETAIL_NAMESPACE": "env"}


def account(folder: Path) -> Path:
    (folder / "token").write_text("account\n")
    (folder / "namespace").write_text("account\n")
    return folder


@pytest.mark.parametrize(
    ("passed", "environment", "in_pod", "found"),
    [
        ({"base_url": "http://own", "token": "own", "namespace": "own"}, KNOWN, True, ("http://own", "own", "own")),
        ({}, KNOWN, True, ("http://env:8000", "env", "env")),
        ({}, {"DOVETAIL_GATEWAY": "http://env"}, True, ("http://env", "account", "account")),
        ({}, {"DOVETAIL_GATEWAY": "http://env"}, False, ("http://env", "", "default")),
        ({"token": ""}, KNOWN, True, ("http://env:8000", "", "env")),
        ({"token": lambda: "called"}, KNOWN, True, ("http://env:8000", "called", "env")),
    ],
)
def test_each_part_comes_from_the_first_that_has_it(
    tmp_path: Path,
    passed: dict[str, Any],
    environment: dict[str, str],
    in_pod: bool,
    found: tuple[str, str, str],
) -> None:
    folder = account(tmp_path) if in_pod else tmp_path / "none"
    made = connection(environment=environment, account=folder, **passed)
    assert (made.url, made.token(), made.namespace) == found


def test_the_token_of_a_pod_is_read_again_because_it_is_replaced(tmp_path: Path) -> None:
    made = connection("http://gw", environment={}, account=account(tmp_path))
    (tmp_path / "token").write_text("second")
    assert made.token() == "second"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://gw/", "http://gw"),
        ("https://gw:8443/dovetail//", "https://gw:8443/dovetail"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_url_ends_without_a_slash(url: str, found: str) -> None:
    assert connection(url, environment={}).url == found


@pytest.mark.parametrize(
    "url", ["gw", "http:/gw", "http://gw#x", "http://gw:0", "http://gw:x", "http://[gw", "https://?a"]
)
def test_what_is_no_url_of_a_gateway_is_refused(url: str) -> None:
    with pytest.raises(errors.SettingsError, match=r"^base_url .* is no URL of a gateway"):
        connection(url, environment={})


def test_an_empty_url_is_none_and_not_that_of_the_environment() -> None:
    with pytest.raises(errors.SettingsError, match="no gateway is named"):
        connection("", environment=KNOWN)
