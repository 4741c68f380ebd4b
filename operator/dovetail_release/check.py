"""`dovetail-release-test`: proves in a minute that a release works. `helm test` runs it.

It reads the CRDs and the Leases, lets the webhook admit a GPUJob that is not stored, and submits a small GPUJob, which
it deletes again. Each check prints one sentence; the first that fails ends the test.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from dovetail import names
from dovetail.api import crd
from dovetail.api.builtin import Lease
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.resources import CRDS, GPUJOBS, LEASES
from dovetail.decoding import UnreadableError, decode
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeconfigError, KubeError, NotFound
from dovetail.process import hooks
from dovetail.query.scheduler import RUNNING, judge_lease

T = TypeVar("T")
_JOB: Final = "dovetail-release-test"
# Of a job that no cycle has looked at yet.
_UNDECIDED: Final = frozenset({"", "Evaluating"})
_POLL_SECONDS: Final = 0.5
# A standby takes over within 15 s.
_LEADER_SECONDS: Final = 20.0
_NAMED: Final = 3


class CheckFailed(Exception):  # noqa: N818 - a verdict, not a fault of this program
    """A check failed; the message says which, and what to look at."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run all checks; exit code 1 if one failed, 2 without a connection."""
    args = parser().parse_args(argv)
    try:
        asyncio.run(_run(args))
    except (CheckFailed, KubeError) as error:
        sys.stdout.write(f"FAILED: {error}\n")
        return 2 if isinstance(error, KubeconfigError) else 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = hooks.parser("dovetail-release-test", description="Prove that a release works.")
    options.add_argument(
        "--leader",
        dest="leaders",
        action="append",
        required=True,
        metavar="NAME",
        help="component that must hold its Lease; may be repeated",
    )
    options.add_argument("--users", action="store_true", help="the webhook must add its creator's name to a GPUJob")
    options.add_argument("--spec", type=_spec, required=True, metavar="JSON", help="spec of the GPUJob to submit")
    options.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="for the GPUJob (default: %(default)g)"
    )
    return options


def _spec(text: str) -> dict[str, Any]:
    try:
        return decode(text, as_type=dict[str, Any])
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(f"must be a JSON object: {error}") from error


async def _run(args: argparse.Namespace) -> None:
    async with hooks.client(args, prog="dovetail-release-test") as client:
        await check(client, args=args, say=lambda sentence: hooks.say(f"ok: {sentence}"))


async def check(client: Client, *, args: argparse.Namespace, say: hooks.Say) -> None:
    """Take the checks in order. Raises `CheckFailed` or `KubeError`."""
    async for sentence in _kinds(client):
        say(sentence)
    for component in args.leaders:
        say(await _leads(client, component=component, namespace=args.namespace))
    job = _manifest(args)
    if args.users:
        say(await _admitted(client, job=job))
    say(await _planned(client, job=job, seconds=args.timeout))


async def _kinds(client: Client) -> AsyncIterator[str]:
    """Compare each CRD with this version's: a field that the API server does not know would be dropped."""
    for ours in crd.crds():
        name = ours["metadata"]["name"]
        try:
            found = await client.get(CRDS, name=name, as_type=dict[str, Any])
        except NotFound:
            raise CheckFailed(
                f"The CRD {name} is not installed: set crds.install=true, or apply crd-files/ of the chart"
            ) from None
        if missing := missing_fields(_schemas(ours), found=_schemas(found)):
            raise CheckFailed(
                f"The CRD {name} is of another version: it lacks {_listed(missing)}. Apply crd-files/ of this chart."
            )
    yield f"The {len(crd.crds())} CRDs have all fields of this version."


def _schemas(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of a CRD by version, each as the properties of its root."""
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"]}


def missing_fields(wanted: Mapping[str, Any], *, found: Mapping[str, Any]) -> list[str]:
    """The paths of `wanted` schemas, such as `v1beta1.spec.gpu`, that `found` does not have. Both are by name."""
    paths: list[str] = []
    for name, schema in wanted.items():
        if name not in found:
            paths.append(name)
            continue
        there = found[name]
        below = missing_fields(schema.get("properties", {}), found=there.get("properties", {}))
        if isinstance(items := schema.get("items"), dict):
            below += missing_fields(items.get("properties", {}), found=there.get("items", {}).get("properties", {}))
        paths += [f"{name}.{path}" for path in below]
    return paths


async def _leads(client: Client, *, component: str, namespace: str) -> str:
    """Wait until the component holds its Lease; the names of both are the same."""

    async def state() -> str:
        try:
            lease = await client.get(LEASES, name=component, as_type=Lease, namespace=namespace)
        except NotFound:
            return "Not running (it has no Lease)"
        return judge_lease(lease, now=datetime.now(UTC))

    state_now = await _until(state, done=lambda said: said == RUNNING, seconds=_LEADER_SECONDS)
    if state_now != RUNNING:
        look = f"kubectl --namespace {namespace} get pods,events"
        raise CheckFailed(f"{component}: {state_now[:1].lower()}{state_now[1:]}. Look at: {look}")
    return f"{component} runs and holds its Lease."


async def _admitted(client: Client, *, job: Mapping[str, Any]) -> str:
    """Let the API server admit the GPUJob without storing it: the webhook must add the creator's name."""
    try:
        admitted = await client.create(
            GPUJOBS, body=job, as_type=GPUJob, namespace=job["metadata"]["namespace"], dry_run=True
        )
    except KubeError as error:
        raise CheckFailed(f"A GPUJob is not admitted: {error}") from error
    if names.USER not in admitted.metadata.annotations:
        raise CheckFailed(
            "The webhook does not complete GPUJobs: look at the MutatingWebhookConfiguration dovetail and the pods of "
            "dovetail-webhook"
        )
    return f"The webhook admits a GPUJob of {admitted.metadata.annotations[names.USER]}."


async def _planned(client: Client, *, job: Mapping[str, Any], seconds: float) -> str:
    """Submit the GPUJob, wait until it has run or the queue has a reason to let it wait, and delete it."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    try:
        await client.delete(GPUJOBS, name=name, namespace=namespace)
    except NotFound:
        pass
    else:  # of a test that was interrupted
        await _until(
            lambda: _exists(client, name=name, namespace=namespace), done=lambda exists: not exists, seconds=20
        )
    created = await client.create(GPUJOBS, body=job, as_type=GPUJob, namespace=namespace)

    async def read() -> GPUJob:
        return await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=namespace)

    try:
        seen = await _until(read, done=lambda job: judge(job) is not None, seconds=seconds)
    finally:
        await client.delete(GPUJOBS, name=name, namespace=namespace, uid=created.metadata.uid)
    if sentence := judge(seen):
        return sentence
    if seen.status.phase is None:
        raise CheckFailed(
            f"The operator has not looked at a GPUJob for {seconds:g} s: see the log of dovetail-operator."
        )
    raise CheckFailed(
        f"A GPUJob was planned, but has not ended within {seconds:g} s: {seen.status.message or seen.status.phase}"
    )


def judge(job: GPUJob) -> str | None:
    """The sentence for a GPUJob that has succeeded, or waits for a reason that the queue gives; None until then.

    Raises `CheckFailed` for one that ended in another way.
    """
    status = job.status
    if status.phase == "Succeeded":
        return f"A GPUJob ran on {status.node_list} and succeeded."
    if status.phase in FINISHED:
        raise CheckFailed(f"A GPUJob ended as {status.phase}: {status.message}")
    if status.phase == "Queued" and status.reason not in _UNDECIDED:
        return f"The queue answers a GPUJob: {status.message}"
    return None


async def _exists(client: Client, *, name: str, namespace: str) -> bool:
    try:
        await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=namespace)
    except NotFound:
        return False
    return True


def _manifest(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": GPUJOBS.kind,
        "metadata": {"name": _JOB, "namespace": args.namespace},
        "spec": args.spec,
    }


async def _until(read: Callable[[], Awaitable[T]], *, done: Callable[[T], bool], seconds: float) -> T:
    """Read until `done` or until the time is over, and return what was read last."""
    limit = time.monotonic() + seconds
    while True:
        seen = await read()
        if done(seen) or time.monotonic() >= limit:
            return seen
        await asyncio.sleep(_POLL_SECONDS)


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more fields" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more
