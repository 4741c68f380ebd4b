"""Logins that a plain kubeconfig does not carry (exec plugins, OIDC), by the official client. Imported on demand."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes import client as official
from kubernetes import config as official_config

from dovetail.kube.auth.kubeconfig import read_pem
from dovetail.kube.errors import KubeconfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a login gave: a certificate with its key, or a token that is asked for again as it expires, or both."""

    client_certificate: str | None = field(repr=False)
    client_key: str | None = field(repr=False)
    token: Callable[[], str | None] = field(repr=False)


def log_in(paths: Sequence[Path], *, context: str, file: Path) -> Credentials:
    """Run the login that the context's user asks for. `file` is where the user stands, for the error's sentence."""
    configuration = official.Configuration()
    try:
        official_config.load_kube_config(  # type: ignore[no-untyped-call]  # the client has no annotations
            config_file=os.pathsep.join(map(str, paths)), context=context, client_configuration=configuration
        )
    except Exception as error:  # a login program may fail in any way, and the official client in more
        raise KubeconfigError(file, problem=f'the login of context "{context}" failed: {error}') from error
    if _authorization(configuration) is None and not configuration.cert_file:
        raise KubeconfigError(file, problem=f'the login of context "{context}" gave neither token nor certificate')

    def token() -> str | None:
        authorization = _authorization(configuration)
        return authorization.removeprefix("Bearer ") if authorization else None

    return Credentials(
        client_certificate=_text(configuration.cert_file), client_key=_text(configuration.key_file), token=token
    )


def _authorization(configuration: official.Configuration) -> str | None:
    # Asking runs the login again when its token has expired. Older versions call the key authorization.
    return configuration.get_api_key_with_prefix("BearerToken", alias="authorization")


def _text(path: str | None) -> str | None:
    return read_pem(Path(path), named="what the login program gave") if path else None
