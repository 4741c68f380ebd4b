"""The options of single sign-on on the command line. Reads the file of the client's secret."""

import argparse
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dovetail.config.errors import ConfigError
from dovetail.kube.auth import trust
from dovetail_gateway.oidc.provider import ProviderOptions

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SCOPES: Final = "openid profile email offline_access"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--public-url", default="", metavar="URL", help="where browsers reach the gateway, for single sign-on"
    )
    parser.add_argument(
        "--oidc-issuer", default="", metavar="URL", help="OpenID provider at which people sign in to the console"
    )
    parser.add_argument(
        "--oidc-client-id",
        default="",
        metavar="ID",
        help="the gateway's client at the provider, and the tokens' audience",
    )
    parser.add_argument(
        "--oidc-client-secret-file", type=Path, metavar="FILE", help="the client's secret; without it a public client"
    )
    parser.add_argument(
        "--oidc-ca-file", type=Path, metavar="FILE", help="CA of the provider's certificate; without it the system's"
    )
    parser.add_argument(
        "--oidc-scopes", default=_SCOPES, metavar="SCOPES", help="what a sign-in asks for (default: %(default)s)"
    )


def provider_of(args: argparse.Namespace) -> ProviderOptions | None:
    """The provider; None without --oidc-issuer. Raises `ConfigError`."""
    if not args.oidc_issuer:
        return None
    scopes = tuple(args.oidc_scopes.split())
    if "openid" not in scopes:
        raise _wrong("oidc-scopes", value=args.oidc_scopes, allowed="openid must be one of the scopes")
    if not args.oidc_client_id:
        raise _wrong("oidc-client-id", value="", allowed="it is required with --oidc-issuer")
    if urlsplit(args.oidc_issuer).scheme != "https":
        raise _wrong("oidc-issuer", value=args.oidc_issuer, allowed="must begin with https://")
    return ProviderOptions(
        issuer=args.oidc_issuer,
        client_id=args.oidc_client_id,
        client_secret=_secret(args.oidc_client_secret_file),
        public_url=public_url(args.public_url),
        scopes=scopes,
        ca_file=_ca(args.oidc_ca_file),
    )


def public_url(text: str) -> str:
    """The URL without a slash at its end. Raises `ConfigError`."""
    url = urlsplit(text)
    plain = url.scheme == "http" and url.hostname in _LOOPBACK
    if not (url.scheme == "https" or plain) or not url.netloc or url.path.strip("/") or url.query or url.fragment:
        allowed = "with --oidc-issuer, it must be https://HOST, such as https://gpu.example.com"
        raise _wrong("public-url", value=text, allowed=allowed)
    return f"{url.scheme}://{url.netloc}"


def _secret(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _wrong("oidc-client-secret-file", value=str(path), allowed=f"cannot be read: {error}") from error
    if not secret:
        raise _wrong("oidc-client-secret-file", value=str(path), allowed="the file is empty")
    return secret


def _ca(path: Path | None) -> Path | None:
    if path is not None:
        try:
            trust.client_context(ca_file=str(path))
        except (OSError, ssl.SSLError) as error:
            raise _wrong("oidc-ca-file", value=str(path), allowed=f"cannot be used: {error}") from error
    return path


def _wrong(option: str, *, value: str, allowed: str) -> ConfigError:
    return ConfigError("command line", problem=f'--{option} "{value}": {allowed}')
