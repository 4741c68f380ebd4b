"""Reads for an explanation: the subject and the cluster's objects."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.answers.questions import Explanation
from dovetail.api.meta import key_of
from dovetail.api.resources import PODS
from dovetail.cluster.objects import ClusterObjects
from dovetail.kube.errors import NotFound
from dovetail.query.explain import subjects
from dovetail.query.explain.explanation import explain
from dovetail.query.explain.requests import of_request
from dovetail.query.explain.rows import explanation_row
from dovetail.query.explain.subjects import Subject
from dovetail.query.jobs import selection
from dovetail_cli.cluster import gateway as gateways
from dovetail_cli.cluster import identity, snapshot, this_machine
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import times
from dovetail_cli.ui.errors import MissingError
from dovetail_cli.ui.progress import patiently

if TYPE_CHECKING:
    from dovetail.sdk.calls.call import Call

Find = Callable[[Cluster, ClusterObjects], Awaitable[Subject]]


def explain_subject(
    find: Find, *, kubeconfig: str | None, context: str | None, namespace: str | None, for_people: bool = False
) -> Explanation:
    """Read the cluster, find the subject, and explain it.

    With `for_people`, in the words of one machine if it is one.
    """

    async def task(cluster: Cluster) -> Explanation:
        return _worded(cluster, found=await _explained(cluster, find=find), for_people=for_people)

    return work(task, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)


def explain_job(
    text: str,
    *,
    gateway: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    for_people: bool = False,
) -> Explanation:
    """Explain a job of the namespace; `for_people` in the words of one machine if it is one.

    The gateway does it, if one is named and the caller may not list the whole cluster.

    Raises `InvalidQueryError`, `MissingError` and `CommandError`.
    """
    find, wanted = find_job(text), selection.parse_one(text, field="JOB")

    async def task(cluster: Cluster) -> Explanation:
        async def there() -> "Call[Explanation]":
            from dovetail.sdk.calls import v3
            from dovetail_cli.jobs import details

            job = await details.find(cluster, wanted=wanted)
            return v3.explain(job.metadata.namespace, name=job.metadata.name)

        async def url() -> str | None:
            # Profiles take a twentieth of a second to import, and only a caller with few rights needs the gateway.
            from dovetail_cli.submit.profiles.effective import gateway_of

            return await gateway_of(cluster, option=gateway)

        found = await gateways.answered(cluster, here=lambda: _explained(cluster, find=find), there=there, url=url)
        return _worded(cluster, found=found, for_people=for_people)

    return work(task, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)


def _worded(cluster: Cluster, *, found: Explanation, for_people: bool) -> Explanation:
    return this_machine.explanation(found=found) if for_people and this_machine.is_one(cluster) else found


async def _explained(cluster: Cluster, *, find: Find) -> Explanation:
    with patiently() as say:
        taken = await snapshot.take(cluster, say=say)
        subject = await find(cluster, taken)
        say(f"Asking {len(taken.nodes):,} nodes …")
        return explanation_row(explain(subject, objects=taken, now=times.utc_now()))


def find_pod(name: str) -> Find:
    """A pod of the namespace. Raises `MissingError`."""

    async def find(cluster: Cluster, taken: ClusterObjects) -> Subject:
        try:
            raw = await cluster.client.get(PODS, name=name, as_type=dict[str, Any], namespace=cluster.namespace)
        except NotFound as error:
            raise MissingError(f"no pod {name} in namespace {cluster.namespace}") from error
        return subjects.of_pod(raw, settings=taken.settings, jobs=taken.jobs)

    return find


def find_job(text: str) -> Find:
    """A job of the namespace by number or name.

    Raises `InvalidQueryError`, and later `MissingError`.
    """
    wanted = selection.parse_one(text, field="JOB")

    async def find(cluster: Cluster, taken: ClusterObjects) -> Subject:
        ours = [job for job in taken.jobs if job.metadata.namespace == cluster.namespace]
        chosen, missing = selection.select(ours, wanted=await identity.of_caller([wanted], cluster=cluster))
        if missing:
            raise MissingError(f"{selection.none_such(missing)} in namespace {cluster.namespace}")
        job = chosen[0]
        pods = taken.pods_by_job().get(key_of(job.metadata), ())
        child = taken.batch_job_of([job]).get(job.metadata.uid)
        return subjects.of_job(job, pods=pods, settings=taken.settings, child=child)

    return find


def find_request(
    text: str, *, mode: str | None, policy: str | None, cpu: str | None, memory: str | None, workload: str | None
) -> Find:
    """A subject for the request that the options name. Raises `InvalidQueryError`."""

    async def find(cluster: Cluster, taken: ClusterObjects) -> Subject:
        subject = of_request(
            text,
            mode=mode,
            policy=policy,
            cpu=cpu,
            memory=memory,
            workload=workload,
            settings=taken.settings,
            field=option_of,
        )
        return replace(subject, namespace=cluster.namespace)

    return find


def option_of(name: str) -> str:
    """The option or argument of `dovetail explain request` that sets this parameter."""
    return {"gpu": "REQUEST", "memory": "--memory-host"}.get(name, f"--{name}")
