"""A kube-scheduler outside the release calls the extender through its Service, with the release's certificates."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from dovetail_certificates.pairs import CLIENT, Authority, make_authority, sign
from dovetail_certificates.signing import Authorities
from tests.installation import attached
from tests.installation.attached import Load
from tests.installation.machine import CHART, NAMESPACE, Machine, timed

pytestmark = [pytest.mark.cluster, pytest.mark.realnode, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "dovetail-extender-client"
# kubelet delivers a changed Secret within its sync period, a minute, and the extender checks its files every 10 s.
DELIVERED_SECONDS = 150


@pytest.fixture(scope="module")
def installed(machine: Machine) -> Machine:
    """The preset `attach` without anything else about certificates."""
    with timed("helm install --wait"):
        done = machine.upgrade(f"--values={CHART / 'presets' / 'attach.yaml'}")
    assert done.returncode == 0, f"{done.stderr}\n{machine.state()}"
    return machine


@pytest.fixture
def load(installed: Machine) -> Load:
    return Load(installed)


def test_the_configuration_that_helm_prints_places_pods_as_it_is(installed: Machine, load: Load) -> None:
    with attached.scheduler(installed, attached.secret(installed, NAME)), timed("the first pod"):
        load.bind_one()
    assert len(attached.endpoint(installed)) == 1


@pytest.mark.parametrize("case", ["no certificate", "expired", "of another CA", "another name", "another extender"])
def test_without_a_proof_no_pod_is_placed(installed: Machine, load: Load, case: str) -> None:
    files = attached.secret(installed, NAME)
    configuration = attached.printed_configuration(installed)
    if case == "no certificate":
        configuration = "\n".join(
            line for line in configuration.splitlines() if "certFile" not in line and "keyFile" not in line
        )
    elif case == "another extender":
        files["ca.crt"] = stranger().certificate
    else:
        files |= forged(installed, case=case)
    with attached.scheduler(installed, files, configuration=configuration):
        name = load.make()
        installed.until(lambda: "FailedScheduling" in load.events(name), what=f"a refusal of {name}")
        said = load.events(name)
        assert not load.is_bound(name)
        load.delete(name)
    assert "dovetail-extender" in said


def stranger() -> Authority:
    return make_authority(now=datetime.now(UTC), lifetime=timedelta(days=1))


def forged(machine: Machine, *, case: str) -> dict[str, bytes]:
    """A client's certificate and key that prove nothing."""
    authorities = Authorities.from_secret(attached.secret(machine, "dovetail-extender-ca"))
    assert authorities.current is not None
    now = datetime.now(UTC)
    issuer = stranger() if case == "of another CA" else authorities.current
    name = "someone" if case == "another name" else NAME
    made_at = now - timedelta(hours=5) if case == "expired" else now
    pair = sign([name], authority=issuer, now=made_at, lifetime=timedelta(hours=4), use=CLIENT)
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def test_both_certificates_rotate_under_load_and_no_bind_fails(installed: Machine, load: Load) -> None:
    before = {name: attached.secret(installed, name) for name in (NAME, "dovetail-extender")}
    with attached.scheduler(installed, before[NAME]):
        load.bind_one()
        # dovetail-certificates makes both again, as it does when two thirds of their life are over.
        installed.kubectl("delete", "secret", NAME, "dovetail-extender", f"--namespace={NAMESPACE}")
        installed.until(lambda: exists(installed, NAME), what="the certificates are made again")
        after = attached.secret(installed, NAME)
        assert after["tls.crt"] != before[NAME]["tls.crt"]
        # The CA remains: kube-scheduler reads it only when it starts.
        assert after["ca.crt"] == before[NAME]["ca.crt"]
        attached.give(installed, after)
        limit = time.monotonic() + DELIVERED_SECONDS
        while reloads(installed) < 2:
            assert time.monotonic() < limit, "the extenders do not reload"
            load.bind_one()
        for _ in range(5):
            load.bind_one()
    print(f"{len(load.made)} pods were bound during the rotation")
    assert not load.failures()


def exists(machine: Machine, name: str) -> bool:
    return name in {each["metadata"]["name"] for each in machine.objects("secrets")}


def reloads(machine: Machine) -> int:
    """How many extenders serve another certificate than the one they started with."""
    selector = "--selector=app.kubernetes.io/component=extender"
    logs = machine.kubectl("logs", selector, "--tail=-1", "--prefix", f"--namespace={NAMESPACE}")
    return len({line.split("]")[0] for line in logs.splitlines() if "certificate reloaded" in line})


def test_another_extender_takes_over_behind_the_same_service(installed: Machine, load: Load) -> None:
    with attached.scheduler(installed, attached.secret(installed, NAME)):
        load.bind_one()
        (address,) = attached.endpoint(installed)
        pods = installed.objects("pods", "--selector=app.kubernetes.io/component=extender")
        (active,) = [each["metadata"]["name"] for each in pods if each["status"]["podIP"] == address]
        installed.kubectl("delete", "pod", active, f"--namespace={NAMESPACE}", "--grace-period=0", "--force")
        with timed("until the next bind after the active extender was killed"):
            load.bind_one()
        assert attached.endpoint(installed) != [address]
    audit = installed.dovetail("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
