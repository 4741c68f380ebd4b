"""Other projects' controllers that a sandbox runs next to Dovetail, from their charts. Pure.

The charts are written for a cluster. They change only where a local process cannot have the original: the API server
reaches their webhooks by an address instead of a Service, and only the sandbox signs certificates.
"""

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail_sandbox.errors import InvalidInputError
from dovetail_sandbox.installed.chart import Manifest, Rendered

_CONFIGURATION: Final = "controller_manager_config.yaml"
_WEBHOOKS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
_PORT_USES: Final = ("webhook", "health")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One controller. Its program, its chart's release and its process all have its name.

    - `own_certificate`: the name of the authority of a controller that must manage its certificate itself. It keeps a
      valid certificate that names this authority in addition to its Service.
    - `certificate_key`: the key of its configuration for that.
    - `finds_certificate`: whether its configuration can name the folder of its certificate.
    - `values`: the values of its chart.
    """

    name: str
    own_certificate: str = ""
    certificate_key: str = "internalCertManagement"
    finds_certificate: bool = True
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The namespace of its chart."""
        return f"{self.name}-system"

    @property
    def service(self) -> str:
        """The host name that it expects for calls to its webhooks."""
        return f"{self.name}-webhook-service.{self.namespace}.svc"

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names in its certificate."""
        return tuple(name for name in (self.service, self.own_certificate) if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A neighbour's place on this machine.

    `certificates` has `tls.crt` and `tls.key`; the certificate is self-signed.
    """

    webhook_port: int
    health_port: int
    certificates: Path
    certificate: str
    key: str

    def url(self, path: str) -> str:
        """The URL at which the API server calls a webhook."""
        return f"https://127.0.0.1:{self.webhook_port}{path}"


# In the order of their start: Kueue and the Trainer look for JobSets when they start.
NEIGHBOURS: Final = {
    each.name: each
    for each in (
        Neighbour(name="jobset"),
        Neighbour(name="lws"),
        Neighbour(
            name="trainer",
            certificate_key="certManagement",
            finds_certificate=False,
            values={"jobset.install": False},
        ),
        Neighbour(
            name="kueue",
            own_certificate="kueue-ca",
            # An aggregated API would need a reachable Service.
            values={"controllerManager.featureGates": [{"name": "VisibilityOnDemand", "enabled": False}]},
        ),
    )
}


def chosen(names: Collection[str]) -> list[Neighbour]:
    """Return the named neighbours in the order of their start.

    Raises `InvalidInputError` if unknown.
    """
    if unknown := [name for name in names if name not in NEIGHBOURS]:
        raise InvalidInputError("with", value=unknown[0], allowed=", ".join(NEIGHBOURS))
    return [each for each in NEIGHBOURS.values() if each.name in names]


def ports_of(neighbours: Sequence[Neighbour]) -> list[str]:
    """The names of the ports that they need."""
    return [port_name(each, use=use) for each in neighbours for use in _PORT_USES]


def port_name(neighbour: Neighbour, *, use: str) -> str:
    """The name of one port."""
    return f"{neighbour.name}.{use}"


def adapted(rendered: Rendered, *, neighbour: Neighbour, local: Local) -> Rendered:
    """Adapt the chart to this machine."""
    workloads = tuple(_as_process(each, neighbour=neighbour, local=local) for each in rendered.workloads)
    # The chart's Service leads to no process, and an API service without an answer blocks the deletion of namespaces.
    kept = [each for each in rendered.objects if each["kind"] != "APIService"]
    objects = tuple(_placed(each, neighbour=neighbour, local=local) for each in kept)
    return Rendered(text=rendered.text, workloads=workloads, objects=objects)


def _as_process(workload: Manifest, *, neighbour: Neighbour, local: Local) -> Manifest:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probe = {"httpGet": {"path": "/readyz", "port": local.health_port}}
    # Where controller-runtime looks for a certificate, if the configuration does not name a folder.
    temporary = {"name": "TMPDIR", "value": str(local.certificates.parents[1])}
    process = {
        **container,
        "name": neighbour.name,
        "command": [neighbour.name],
        "env": [*(container.get("env") or []), temporary],
        "readinessProbe": probe,
    }
    template = {**workload["spec"]["template"], "spec": {**pod, "containers": [process]}}
    return {**workload, "spec": {**workload["spec"], "template": template}}


def _placed(manifest: Manifest, *, neighbour: Neighbour, local: Local) -> Manifest:
    if manifest["kind"] in _WEBHOOKS:
        hooks = [{**each, "clientConfig": _called(each["clientConfig"], local=local)} for each in manifest["webhooks"]]
        return {**manifest, "webhooks": hooks}
    if manifest["kind"] == "CustomResourceDefinition" and "webhook" in manifest["spec"].get("conversion", {}):
        conversion = manifest["spec"]["conversion"]
        webhook = {**conversion["webhook"], "clientConfig": _called(conversion["webhook"]["clientConfig"], local=local)}
        return {**manifest, "spec": {**manifest["spec"], "conversion": {**conversion, "webhook": webhook}}}
    if manifest["kind"] == "Secret":
        texts = {"tls.crt": local.certificate, "tls.key": local.key, "ca.crt": local.certificate, "ca.key": local.key}
        return {**manifest, "data": {name: _base64(text) for name, text in texts.items()}}
    if manifest["kind"] == "ConfigMap" and _CONFIGURATION in manifest["data"]:
        configuration = _configured(yaml.safe_load(manifest["data"][_CONFIGURATION]), neighbour=neighbour, local=local)
        return {
            **manifest,
            "data": {**manifest["data"], _CONFIGURATION: yaml.safe_dump(configuration, sort_keys=False)},
        }
    return manifest


def _called(client: Mapping[str, Any], *, local: Local) -> dict[str, Any]:
    return {"url": local.url(client["service"]["path"]), "caBundle": _base64(local.certificate)}


def _configured(configuration: Mapping[str, Any], *, neighbour: Neighbour, local: Local) -> dict[str, Any]:
    folder = {"certDir": str(local.certificates)} if neighbour.finds_certificate else {}
    management = neighbour.certificate_key
    return {
        **configuration,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{local.health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": local.webhook_port, **folder},
        # There is only one process, and outside a pod it does not know the namespace of its Lease.
        "leaderElection": {**configuration.get("leaderElection", {}), "leaderElect": False},
        management: {**configuration[management], "enable": bool(neighbour.own_certificate)},
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
