"""Logins by exec plugin and OIDC, through the official `kubernetes` package. Imported for a user who needs it.

The package runs the plugin, and renews and saves the tokens of an identity provider. Where it logs a failure and goes
on without credentials, this raises `KubeconfigError`. docs/decisions/0012-client-of-our-own.md has the facts.
"""

import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubernetes.client import Configuration
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from dovetail.kube.auth.kubeconfig import Choice, choose, read_text
from dovetail.kube.errors import KubeconfigError

# At a terminal the plugin's messages go there, and the package fails over their absence (issues 2136 and 2343).
_NO_MESSAGE: Final = "'NoneType' object has no attribute 'strip'"


class Login:
    """The login of a context's user, for the life of a process. Thread-safe. The constructor logs in.

    `certificate` and `key` are PEM texts if the login gave them. They are not renewed: the package renews tokens alone.
    """

    def __init__(self, paths: Sequence[Path], *, context: str) -> None:
        self._paths = paths
        self._context = context
        self._one_at_a_time = threading.Lock()
        self.certificate: str | None = None
        self.key: str | None = None
        self._configuration = self._log_in()

    def token(self, *, renew: bool = False) -> str | None:
        """The token to send now. Logs in again if `renew` is set. Raises `KubeconfigError` if that fails."""
        with self._one_at_a_time:
            if renew:
                self._configuration = self._log_in()
            else:
                # The package renews five minutes early. If that fails, the API server judges the old token.
                with _logged():
                    self._configuration.get_api_key_with_prefix("BearerToken")
            return _token(self._configuration)

    def _log_in(self) -> Configuration:
        # The files are read again: kubectl may have written newer tokens.
        choice = choose(self._paths, context=self._context)
        configuration = Configuration()
        with tempfile.TemporaryDirectory(prefix="dovetail-") as directory, _logged() as messages:
            try:
                self._load(choice, directory=directory).load_and_set(configuration)
            except Exception as error:  # the package, urllib3 and oauthlib have errors of their own
                raise _failure(choice, problem=str(error)) from error
            if configuration.cert_file and configuration.key_file:
                self.certificate = read_text(Path(configuration.cert_file), named="the certificate of the login")
                self.key = read_text(Path(configuration.key_file), named="the key of the login")
        if _token(configuration) is None and self.certificate is None:
            raise _failure(choice, problem=messages[-1] if messages else "it gave neither a token nor a certificate")
        return configuration

    def _load(self, choice: Choice, *, directory: str) -> KubeConfigLoader:
        # The package refuses an empty file, and takes the current context of the last one.
        files = KubeConfigMerger(
            os.pathsep.join(str(path) for path in self._paths if path.exists() and path.stat().st_size)
        )
        return KubeConfigLoader(
            files.config,
            active_context=choice.context,
            config_base_path=None,
            config_persister=_checking(files, choice=choice) if choice.user.auth_provider else files.save_changes,
            temp_file_path=directory,
        )


def _checking(files: KubeConfigMerger, *, choice: Choice) -> Callable[[], None]:
    """Give the auth-provider what the package needs and kubectl does not. Returns the function that saves new tokens.

    The package does not check the certificate of an identity provider for which no authority is named (issue 2034).
    """
    users = files.config_files[str(choice.user_file)]["users"]
    config = next(user for user in users if user["name"] == choice.user_name)["user"]["auth-provider"].get("config", {})
    added = {}
    if not config.get("idp-certificate-authority") and not config.get("idp-certificate-authority-data"):
        config.pop("idp-certificate-authority-data", None)
        added["idp-certificate-authority"] = ssl.get_default_verify_paths().cafile or _bundled_authorities()
    if "client-secret" not in config:
        added["client-secret"] = ""
    config.update(added)

    def save() -> None:
        for key in added:
            del config[key]
        files.save_changes()

    return save


def _bundled_authorities() -> str:
    import certifi  # noqa: PLC0415 - requests brings it; needed where the system has no authorities

    return certifi.where()


def _token(configuration: Configuration) -> str | None:
    authorization = configuration.api_key.get("BearerToken")
    return authorization.removeprefix("Bearer ") if authorization else None


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.module == "kube_config" and record.thread == self._thread:
            self.texts.append(record.getMessage())


@contextmanager
def _logged() -> Iterator[list[str]]:
    """What the package logs meanwhile, which is all it says about a plugin that failed."""
    messages, root = _Messages(), logging.getLogger()
    root.addHandler(messages)
    try:
        yield messages.texts
    finally:
        root.removeHandler(messages)


def _failure(choice: Choice, *, problem: str) -> KubeconfigError:
    plugin = choice.user.exec or {}
    how = "identity provider" if choice.user.auth_provider else f'program "{plugin.get("command", "")}"'
    said = "it ended with an error" if problem == _NO_MESSAGE else problem.removeprefix("exec: ")
    if "No such file" in problem and plugin.get("installHint"):
        said += f" ({plugin['installHint'].strip()})"
    return choice.user_error(f"logs in by the {how}, which failed: {' '.join(said.split())}")
