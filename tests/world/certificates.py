"""Parts that keep certificates, what trusts them, and the endpoint that they are for."""

import base64
from argparse import Namespace
from typing import Final

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from dovetail.kube.client import Client
from dovetail_certificates import hook
from dovetail_certificates.extender import Attached, ExtenderKeeper
from dovetail_certificates.keeper import Keeper, Target
from dovetail_certificates.metrics import Metrics
from dovetail_extender.cluster.service_endpoint import Endpoint, ServiceEndpoint
from tests.world.stage import Part, Program, Site, Stage, Step, change, drop, put, wait

HOME: Final = "dovetail-system"


# --- certificates ----------------------------------------------------------------------------------------------------


def _extender_certificates(client: Client, stage: Stage) -> Program:
    attached = Attached(namespace=HOME, secret="extender", names=("extender.svc",), client_names=("scheduler",))
    return ExtenderKeeper(client, attached=attached, metrics=Metrics(), now=stage.now, look_seconds=86400.0)


def _certificate_scene(_site: Site) -> list[Step]:
    return [
        wait(3 * 86400.0),
        drop("secrets", f"{HOME}/extender"),
        change("secrets", f"{HOME}/extender-client", lambda each: each["data"].pop("tls.key", None)),
        drop("secrets", f"{HOME}/extender-ca"),
    ]


class _OfWebhook:
    """The hook of an upgrade, and the keeper that goes on afterwards."""

    def __init__(self, client: Client, stage: Stage) -> None:
        target = Target(namespace=HOME, secret="webhook", names=("webhook.svc",))
        self._client, self._now = client, stage.now
        self.part = Keeper.of_webhook(client, target=target, metrics=Metrics(), now=stage.now, look_seconds=86400.0)
        self.informers = ()

    async def run(self) -> None:
        args = Namespace(secret="webhook", configuration="dovetail", namespace=HOME, timeout=600.0)
        assert not await hook.run(self._client, args=args, say=lambda _text: None, now=self._now)
        await self.part.run()


def _webhooks(stage: Stage) -> None:
    hooks = [{"name": name, "clientConfig": {"url": "https://127.0.0.1"}} for name in ("pods", "gpujobs")]
    stage.server.create("mutatingwebhookconfigurations", {"metadata": {"name": "dovetail"}, "webhooks": hooks})


def _of_webhook_scene(_site: Site) -> list[Step]:
    return [
        wait(3 * 86400.0),
        drop("secrets", f"{HOME}/webhook"),
        change("secrets", f"{HOME}/webhook", lambda each: each["data"].pop("tls.key", None)),
    ]


def _check_trust(stage: Stage) -> None:
    """Each webhook's bundle has the CA that signed what the webhook serves."""
    served, authority = (stage.server.find("secrets", f"{HOME}/{name}") for name in ("webhook", "webhook-ca"))
    configured = stage.server.find("mutatingwebhookconfigurations", "dovetail")
    assert served is not None
    assert authority is not None
    assert configured is not None
    signed_by = base64.b64decode(authority["data"]["ca.crt"])
    leaf = load_pem_x509_certificate(base64.b64decode(served["data"]["tls.crt"]))
    leaf.verify_directly_issued_by(load_pem_x509_certificate(signed_by))
    assert leaf.not_valid_after_utc > stage.now()
    for each in configured["webhooks"]:
        assert signed_by in base64.b64decode(each["clientConfig"]["caBundle"]), each["name"]


def _check_signatures(stage: Stage) -> None:
    """Both certificates are signed by the CA that there is, and have its key."""
    data = {
        name: {
            key: base64.b64decode(text) for key, text in stage.server.find("secrets", f"{HOME}/{name}")["data"].items()
        }
        for name in ("extender-ca", "extender", "extender-client")
    }
    authority = load_pem_x509_certificate(data["extender-ca"]["ca.crt"])
    for name in ("extender", "extender-client"):
        leaf = load_pem_x509_certificate(data[name]["tls.crt"])
        leaf.verify_directly_issued_by(authority)
        key = load_pem_private_key(data[name]["tls.key"], password=None)
        assert leaf.public_key() == key.public_key()


# --- the endpoint of a Service ---------------------------------------------------------------------------------------


class _Published:
    def __init__(self, client: Client) -> None:
        endpoint = Endpoint(service="extender", namespace=HOME, address="10.0.0.7", port=8888)
        self.part = ServiceEndpoint(client, endpoint=endpoint, guard=lambda: None)
        self.informers = ()

    async def run(self) -> None:
        await self.part.run(obstacle=lambda: "")


def _endpoint_scene(_site: Site) -> list[Step]:
    service = {"metadata": {"name": "extender", "namespace": HOME}, "spec": {}}
    return [
        put("services", service),
        change("endpointslices", f"{HOME}/extender", lambda each: each["endpoints"].clear()),
        drop("services", f"{HOME}/extender"),
        put("services", service),
    ]


CERTIFICATES: Final[dict[str, Part]] = {
    "certificates of an extender": Part(
        make=_extender_certificates,
        scene=_certificate_scene,
        writes=["secrets"],
        owns=["secrets"],
        settle_seconds=4 * 86400.0,
        not_empty={"ExtenderKeeper._sides": "what is to be kept"},
        check=_check_signatures,
        is_of_sites=False,
    ),
    "the webhook's certificate": Part(
        make=_OfWebhook,
        scene=_of_webhook_scene,
        writes=["secrets", "mutatingwebhookconfigurations"],
        owns=[],
        settle_seconds=2 * 86400.0,
        start=_webhooks,
        not_empty={"Keeper._sides": "what is to be kept"},
        check=_check_trust,
        is_of_sites=False,
    ),
    "the endpoint of a Service": Part(
        make=lambda client, _stage: _Published(client),
        scene=_endpoint_scene,
        writes=["endpointslices"],
        owns=["endpointslices"],
        renews=("PATCH endpointslices",),
        is_of_sites=False,
    ),
}
