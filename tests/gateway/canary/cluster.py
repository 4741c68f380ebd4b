"""The cluster of two tenants with its quotas and rights, as an API server has them."""

from typing import Any

from tests.gateway.builders import uid_of
from tests.gateway.canary.objects import (
    COMMON,
    CREATED,
    EMPTY,
    ONE,
    TENANTS,
    TOKENS,
    Values,
    jobs,
    nodes,
    pods,
    project,
)
from tests.gateway.canary.rbac import RbacApiServer


def fill(api: RbacApiServer) -> None:
    """Put all objects, users and rights."""
    for kind, subject in [*nodes(), *_quotas()]:
        api.put(kind, subject)
    for tenant in TENANTS:
        for kind, subject in [*jobs(tenant), *pods(tenant)]:
            api.put(kind, subject)
    numbered = [f"{name}/cuda:{at}" for name in ("one", "two", "vendor") for at in range(4)]
    api.number(*numbered)
    api.line_of = lambda namespace, pod: f"{namespace.removesuffix('-ns')}-line-of-{pod}"
    _rights(api)


def _rights(api: RbacApiServer) -> None:
    for token, name in TOKENS.items():
        api.add_user(token, name, groups=("both-group",) if name == "both-user" else ())
    for tenant in TENANTS:
        api.grant("editor", tenant.user, namespace=tenant.namespace)
        api.grant("editor", "group:both-group", namespace=tenant.namespace)
    api.grant("reader", "reader-user", namespace=ONE.namespace)
    api.grant("editor", "empty-user", namespace=EMPTY)
    for each in ("reader-user", "both-user", "admin-user"):
        api.grant("quota-planner", each)
    for role in ("editor", "node-admin"):
        api.grant(role, "admin-user")
    for tenant in TENANTS:
        # The same user with another token, whose group may do everything.
        api.add_user(f"{tenant.word}-all-token", tenant.user, groups=("all-group",))
    api.grant("editor", "group:all-group")


# --- quotas --------------------------------------------------------------------------------------------------------


def _quotas() -> list[tuple[str, Values]]:
    """Quotas of each kind: of one tenant and of both, by namespace, user and project, in a tree and outside of it."""
    namespaces, users = [each.namespace for each in TENANTS], [each.user for each in TENANTS]
    found = [
        _quota("everyone", {"limit": {"gpus": 100}, "per": "Namespace"}, who=[*namespaces, EMPTY]),
        _quota("all-users", {"limit": {"gpus": 90}, "per": "User"}, who=[*users, COMMON]),
        _quota(
            "both",
            {"namespaces": namespaces, "limit": {"gpus": 64, "runningJobs": 50}, "per": "Namespace"},
            who=namespaces,
        ),
        _quota("people", {"users": [*users, COMMON], "per": "User", "limit": {"queuedJobs": 40}}, who=[*users, COMMON]),
        _quota("together", {"namespaces": namespaces, "limit": {"gpus": 63, "memory": "640Gi"}}, who=[""]),
        _quota(
            "projects",
            {"projects": [*(project(each, "train") for each in TENANTS), "common-project"], "limit": {"gpus": 62}},
            who=[""],
        ),
        # What the two allocations of this project use.
        _quota("project", {"projects": ["common-project"], "limit": {"gpus": 2}}, who=[""]),
        _quota(
            "tree",
            {"guaranteed": {"gpus": 8}, "limit": {"gpus": 60}},
            who=[""],
            guarantee={"gpus": 8, "used": 7, "waiting": 2},
        ),
    ]
    for each in TENANTS:
        at = each.offset
        window = {"name": each.mark("window"), "gpus": 1 + at, "startTime": f"2026-12-01T0{at}:00:00Z"}
        own = {"namespaces": [each.namespace], "advanceReservations": [window | {"endTime": "2026-12-02T00:00:00Z"}]}
        tree = {"namespaces": [each.namespace], "parent": "tree", "guaranteed": {"gpus": 2, "memory": "64Gi"}}
        lends = {"gpus": 2, "used": 3 + at, "lent": 0, "borrowed": 1 + at, "waiting": 1}
        told = {"type": "Valid", "status": "False", "reason": "Tree", "message": each.mark("condition")} | {
            "lastTransitionTime": CREATED
        }
        found += [
            _quota(
                each.mark("quota"),
                own | {"limit": {"gpus": 30 + at}, "maxPriority": 200 + at, "shares": 5 + at},
                who=[""],
            ),
            _quota(each.mark("branch"), tree, who=[""], guarantee=lends, conditions=[told]),
            _quota(
                each.mark("users"), {"users": [each.user], "per": "User", "limit": {"gpus": 20 + at}}, who=[each.user]
            ),
            _quota(
                each.mark("projects"),
                {
                    "namespaces": [each.namespace],
                    "projects": [project(each, "train")],
                    "limit": {"models": {"V100": 9}},
                },
                who=[""],
            ),
        ]
    return [("gpuquotas", each) for each in found]


def _quota(name: str, spec: Values, *, who: list[str], **status: Any) -> Values:
    uses = [
        {
            "who": each,
            "gpus": 1.5 + at,
            "memoryMiB": 1000 + at,
            "runningJobs": 2 + at,
            "queuedJobs": 3 + at,
            "gpuSeconds": 9.5,
        }
        for at, each in enumerate(who)
    ]
    sums = {
        "gpus": sum(each["gpus"] for each in uses),
        "memoryMiB": sum(each["memoryMiB"] for each in uses),
        "runningJobs": sum(each["runningJobs"] for each in uses),
        "queuedJobs": sum(each["queuedJobs"] for each in uses),
    }
    return {
        "metadata": {"name": name, "uid": uid_of("quota", name)},
        "spec": spec,
        "status": {"uses": uses, "asOf": CREATED} | sums | status,
    }
