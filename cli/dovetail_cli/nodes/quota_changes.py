"""Creates, changes and deletes GPUQuotas."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from dovetail import names
from dovetail.api.gpuquota import KIND, GPUAmounts, GPUQuota, Per, PreemptionPolicy
from dovetail.api.resources import GPUQUOTAS
from dovetail.formats.quantities import read_whole
from dovetail.query.quotas.changes import changed, patch_of, problem_of, problem_of_parent
from dovetail.queue.quota_tree.tree_builder import tree_of
from dovetail_cli.cluster import several
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.submit.options.of_spec import one_of
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.job_names import check_object_name

_NONE: Final = "none"
_ALL: Final = "all"
# By option: the path of the field, and the lowest and highest value that the schema takes.
_AMOUNTS: Final = {
    "--gpus": (("limit", "gpus"), 0, 1_000_000),
    "--guaranteed": (("guaranteed", "gpus"), 0, 1_000_000),
    "--running-jobs": (("limit", "runningJobs"), 0, 1_000_000),
    "--queued-jobs": (("limit", "queuedJobs"), 0, 1_000_000),
    "--shares": (("shares",), 1, 10_000),
    "--max-priority": (("maxPriority",), 0, 255),
}


def read(
    *,
    lists: Mapping[str, str | None],
    amounts: Mapping[str, str | None],
    per: str | None,
    preemption_policy: str | None,
    parent: str | None = None,
) -> dict[str, Any]:
    """The fields of a GPUQuota's spec that the options change; None lifts a limit.

    `lists` and `amounts` are texts by option. Raises `UsageError`.
    """
    fields: dict[str, Any] = {}
    for option, text in lists.items():
        if text is not None:
            fields[option.removeprefix("--")] = [] if text == _ALL else _words(text, option=option)
    for option, text in amounts.items():
        if text is not None:
            path, low, high = _AMOUNTS[option]
            inside = fields.setdefault(path[0], {}) if len(path) > 1 else fields
            inside[path[-1]] = None if text == _NONE else _number(text, option=option, low=low, high=high)
    if parent is not None:
        fields["parent"] = None if parent == _NONE else check_object_name(parent, field="--parent")
    if per is not None:
        fields["per"] = one_of(per, option="--per", allowed=get_args(Per))
    if preemption_policy is not None:
        fields["preemptionPolicy"] = one_of(
            preemption_policy, option="--preemption-policy", allowed=get_args(PreemptionPolicy)
        )
    if not fields:
        raise UsageError("say what to set, such as --gpus 8, --running-jobs 20 or --namespaces vision")
    return fields


def apply(name: str, *, changes: Mapping[str, Any], kubeconfig: str | None, context: str | None) -> str:
    """Create or change the quota, and return a sentence with its limits."""
    check_object_name(name, field="NAME")

    async def go(cluster: Cluster) -> str:
        client = cluster.client
        known = {quota.metadata.name: quota for quota in (await client.list(GPUQUOTAS, as_type=GPUQuota)).items}
        patch = patch_of(known.get(name), changes=changes)
        wanted = changed(name, before=known.get(name), patch=patch)
        check(wanted, others=known)
        if name in known:
            quota = await client.patch(GPUQUOTAS, name=name, patch={"spec": patch}, as_type=GPUQuota)
        else:
            spec = msgspec.to_builtins(wanted.spec)
            body = {"apiVersion": names.API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
            quota = await client.create(GPUQUOTAS, body=body, as_type=GPUQuota)
        done = "changed" if name in known else "created"
        wrong = [finding.message for finding in tree_of((known | {name: quota}).values()).findings]
        return "\n".join([f"GPUQuota {name} {done}: {_limits_of(quota)}", *(f"{each}." for each in wrong)])

    return work(go, kubeconfig=kubeconfig, context=context)


def check(quota: GPUQuota, *, others: Mapping[str, GPUQuota]) -> None:
    """Refuse fields that contradict each other, and a parent that cannot be one.

    Raises `UsageError`, before anything is written.
    """
    if problem := problem_of(quota):
        raise UsageError(f"GPUQuota {quota.metadata.name}: {problem}")
    if problem := problem_of_parent(quota, others=others):
        raise UsageError(f"--parent {problem}")


def delete(quotas: Sequence[str], *, kubeconfig: str | None, context: str | None) -> str:
    """Delete the quotas, and return a sentence for each.

    Raises `NotFound` before anything is deleted, and `CommandError` about those that are not deleted, which names the
    others.
    """

    async def go(cluster: Cluster) -> str:
        for name in quotas:
            # The client takes a missing object as deleted; a misspelt name must not look so.
            await cluster.client.get(GPUQUOTAS, name=name, as_type=GPUQuota)
        deletions = {f"GPUQuota {name}": cluster.client.delete(GPUQUOTAS, name=name) for name in quotas}
        done, refused = await several.each(deletions)
        if refused is not None:
            raise type(refused)("; ".join([str(refused), *(f"{name} deleted" for name in done)]))
        return "\n".join(f"{name} deleted." for name in done)

    return work(go, kubeconfig=kubeconfig, context=context)


def _limits_of(quota: GPUQuota) -> str:
    """The limits in few words, as the options are called."""
    spec = quota.spec
    amounts = {
        "gpus": spec.limits.gpus,
        "memory": spec.limits.memory,
        "guaranteed": None if spec.guaranteed is None else spec.guaranteed.gpus,
        "guaranteed memory": None if spec.guaranteed is None else spec.guaranteed.memory,
        **{f"guaranteed {model}": amount for model, amount in (spec.guaranteed or GPUAmounts()).models.items()},
        "running-jobs": spec.limits.running_jobs,
        "queued-jobs": spec.limits.queued_jobs,
        "shares": spec.shares,
        "max-priority": spec.max_priority,
    }
    said = [f"{name} {amount}" for name, amount in amounts.items() if amount is not None]
    said += ["no preemption"] if spec.preemption_policy == "Never" else []
    said += [] if spec.parent is None else [f"parent {spec.parent}"]
    named = (", ".join(spec.namespaces), ", ".join(spec.projects), ", ".join(spec.users))
    whom = " and ".join(filter(None, named)) or "everyone"
    pools = f", nodes of {', '.join(spec.pools)}" if spec.pools else ""
    each = "" if spec.per == "Together" else f", each {spec.per.lower()} by itself"
    return f"{', '.join(said) or 'no limits'}, for {whom}{each}{pools}."


def _words(text: str, *, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f'{option} "{text}": write names separated by commas, such as {option} vision,speech, or all')
    return words


def _number(text: str, *, option: str, low: int, high: int) -> int:
    number = read_whole(text, otherwise=-1)
    if not low <= number <= high:
        raise UsageError(f'{option} "{text}": write a whole number from {low} to {high}, such as {option} 8, or none')
    return number
