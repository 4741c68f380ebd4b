"""The options of Prometheus as a source on the command line. Reads the file of its CA."""

import argparse
import re
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dovetail.config.errors import ConfigError
from dovetail.kube.auth import trust
from dovetail_gateway.samples.prometheus import PrometheusOptions

_LABEL: Final = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=(.+)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="Prometheus that scrapes the agents: the curves of devices come from there; without it from this gateway",
    )
    parser.add_argument(
        "--prometheus-label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what its series must have, where it has several clusters; repeatable",
    )
    parser.add_argument(
        "--prometheus-ca-file", type=Path, metavar="FILE", help="CA of its certificate; without it the system's"
    )
    parser.add_argument(
        "--prometheus-token-file", type=Path, metavar="FILE", help="bearer token for it, read at each request"
    )


def prometheus_of(args: argparse.Namespace) -> PrometheusOptions | None:
    """The Prometheus; None without --prometheus-url. Raises `ConfigError`."""
    if not args.prometheus_url:
        return None
    url = urlsplit(args.prometheus_url)
    if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
        allowed = "must be the address of a Prometheus, such as https://prometheus.example.com:9090"
        raise _wrong("prometheus-url", value=args.prometheus_url, allowed=allowed)
    if url.username or url.password:
        allowed = "must have no user and password: put a token into a file (--prometheus-token-file)"
        raise _wrong("prometheus-url", value=f"{url.scheme}://***@{url.hostname}", allowed=allowed)
    if args.prometheus_token_file is not None and url.scheme != "https":
        allowed = "must begin with https:// where a token is sent"
        raise _wrong("prometheus-url", value=args.prometheus_url, allowed=allowed)
    return PrometheusOptions(
        url=args.prometheus_url.rstrip("/"),
        labels=dict(map(_label, args.prometheus_label)),
        ca_file=_ca(args.prometheus_ca_file),
        token_file=args.prometheus_token_file,
    )


def _label(text: str) -> tuple[str, str]:
    found = _LABEL.fullmatch(text)
    if found is None:
        raise _wrong("prometheus-label", value=text, allowed="write NAME=VALUE, such as cluster=berlin")
    return found[1], found[2]


def _ca(path: Path | None) -> Path | None:
    if path is not None:
        try:
            trust.client_context(ca_file=str(path))
        except (OSError, ssl.SSLError) as error:
            raise _wrong("prometheus-ca-file", value=str(path), allowed=f"cannot be used: {error}") from error
    return path


def _wrong(option: str, *, value: str, allowed: str) -> ConfigError:
    return ConfigError("command line", problem=f'--{option} "{value}": {allowed}')
