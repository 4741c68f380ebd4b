"""The Secrets that `dovetail-certificates` maintains: read, and written by server-side apply.

SecretError               the Secret is of no use here
  ForeignSecretError      it exists and has another owner; it is never overwritten
  UnusableAuthorityError  it should hold a CA, and there is none that can sign
"""

from collections.abc import Mapping
from typing import Final

from dovetail import logs, names
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import SECRETS
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_certificates.metrics import Metrics

TLS: Final = "kubernetes.io/tls"
OPAQUE: Final = "Opaque"
log = logs.get_logger("dovetail.certificates")


class SecretError(Exception):
    """The Secret is of no use here."""


class ForeignSecretError(SecretError):
    """The Secret exists and `dovetail-certificates` did not create it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Secret {name} was not made by {names.CERTIFICATES_MANAGER}: delete it, "
            "or name cert-manager's issuer or your own Secret in the values"
        )


class UnusableAuthorityError(SecretError):
    """The Secret should hold a CA, and there is none that can sign."""

    def __init__(self, name: str, *, problem: str) -> None:
        super().__init__(f"Secret {name}: {problem}. `helm upgrade` with the same values makes a CA")


class Secret(Described, frozen=True, kw_only=True):
    """A Secret; msgspec decodes the base64 of its data."""

    metadata: ObjectMeta
    type: str = ""
    data: dict[str, bytes] | None = None


class SecretStore:
    """The Secrets of one namespace."""

    def __init__(self, client: Client, *, namespace: str, metrics: Metrics) -> None:
        self._client = client
        self._namespace = namespace
        self._metrics = metrics

    async def read(self, name: str, *, type_: str = TLS) -> Secret | None:
        """The Secret; None if it does not exist. Raises `ForeignSecretError` and `KubeError`."""
        try:
            found = await self._client.get(SECRETS, name=name, as_type=Secret, namespace=self._namespace)
        except NotFound:
            return None
        if found.metadata.labels.get(names.LABEL_MANAGED_BY) != names.CERTIFICATES_MANAGER or found.type != type_:
            raise ForeignSecretError(name)
        return found

    async def write(
        self, name: str, *, data: Mapping[str, bytes], over: Secret | None, reason: str, type_: str = TLS
    ) -> None:
        """Write the Secret in place of the one that was read. Raises `KubeError`.

        Server-side apply, because RBAC can limit that to one name: a `create` has no name when it is authorized.
        """
        metadata = {
            "name": name,
            "namespace": self._namespace,
            "labels": {names.LABEL_MANAGED_BY: names.CERTIFICATES_MANAGER},
        }
        body = {
            "metadata": metadata | ({"resourceVersion": over.metadata.resource_version} if over else {}),
            "type": type_,
            "data": dict(data),
        }
        await self._client.apply(
            SECRETS,
            name=name,
            body=body,
            as_type=Secret,
            field_manager=names.CERTIFICATES_MANAGER,
            force=True,
            namespace=self._namespace,
        )
        log.info("certificate written", secret=name, reason=reason)
        self._metrics.writes.labels(name).inc()
