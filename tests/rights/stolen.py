"""What whoever steals an account's token can do, and cannot: a sentence for each right, and a right for each sentence.

`python -m tests.rights.stolen` writes the table in SECURITY.md. The table's test compares the sentences with the rights
of the rendered chart, so a right that no sentence covers fails it. `tests/cluster/test_stolen_tokens.py` tries each on
the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chart.generated import CHART
from tests.chart.rights import Right, qualified

PAGE: Final = CHART.parents[1] / "SECURITY.md"
BEGIN: Final = "<!-- stolen: written by `python -m tests.rights.stolen` -->"
END: Final = "<!-- end of stolen -->"
ALWAYS: Final = "always"
LEGACY: Final = "gateway.legacyServiceAccount=scripts"
Verbs = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Can:
    """A sentence and the rights that it stands for: verbs by resource, or by `resource:name` for one object.

    `option` is the value of the chart that brings these rights, and `roles` are Kubernetes' own roles behind it.
    """

    says: str
    rights: Verbs = field(default_factory=dict)
    option: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cannot:
    """A sentence and why it holds: rights that the account lacks, or the policies that refuse what its rights allow."""

    says: str
    lacks: Verbs = field(default_factory=dict)
    policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stolen:
    """One account: when it exists, and what its token is worth."""

    account: str
    exists: str = ALWAYS
    can: tuple[Can, ...] = ()
    cannot: tuple[Cannot, ...] = ()


READS: Final = "get list watch"
WRITES: Final = "create update patch delete"
NO_SECRETS: Final = Cannot(says="read a Secret", lacks={"secrets": READS})
# What it runs may read more.
NO_SECRETS_ITSELF: Final = Cannot(says="read a Secret, except in a pod that it runs", lacks={"secrets": READS})
NO_POD_CHANGES: Final = Cannot(
    says="create, change or delete pods, or run anything in them",
    lacks={"pods": WRITES, "pods/exec": "create", "pods/attach": "create", "pods/ephemeralcontainers": "patch"},
)
NO_RIGHTS: Final = Cannot(
    says="give itself rights or act as another account",
    lacks={
        "clusterroles.rbac.authorization.k8s.io": "create update patch bind escalate",
        "clusterrolebindings.rbac.authorization.k8s.io": "create update patch",
        "serviceaccounts/token": "create",
        "users": "impersonate",
    },
)
NO_HOOKS: Final = Cannot(
    says="change webhook configurations, policies or CRDs",
    lacks={
        "mutatingwebhookconfigurations.admissionregistration.k8s.io": WRITES,
        "validatingadmissionpolicies.admissionregistration.k8s.io": WRITES,
        "customresourcedefinitions.apiextensions.k8s.io": WRITES,
    },
)
NO_WRITES: Final = Cannot(
    says="write anything else",
    lacks={"pods": WRITES, "jobs.batch": WRITES, "gpujobs.dovetail.dev": WRITES, "nodes": WRITES, "configmaps": WRITES},
)
SCHEDULING: Final = (
    Can(
        says="bind any waiting pod to any node, with any devices",
        rights={"pods/binding": "create", "pods": "get"},
    ),
    Can(
        says="read all pods with their environment, their budgets, nodes, GPUJobs, GPUNodes, quotas and ResourceSlices",
        rights={
            "pods": "list watch",
            "nodes": "list watch",
            "gpujobs.dovetail.dev": READS,
            "gpunodes.dovetail.dev": READS,
            "gpuquotas.dovetail.dev": "list watch",
            "poddisruptionbudgets.policy": "list watch",
            "resourceslices.resource.k8s.io": "list watch",
        },
    ),
    Can(
        says="end the active extender's term, wake kube-scheduler, and falsify the mix that prices have learned",
        rights={
            "leases.coordination.k8s.io": "create",
            "leases.coordination.k8s.io:dovetail-extender": "get update",
            "csistoragecapacities.storage.k8s.io:dovetail-wakeup": "patch",
            "configmaps": "create",
            "configmaps:dovetail-mix-of-pods": "get patch",
            "configmaps:dovetail-config": "list watch",
        },
    ),
    Can(
        says="send kube-scheduler's calls to another address, which has no certificate for them",
        rights={
            "endpointslices.discovery.k8s.io:dovetail-extender": "create patch",
            "services:dovetail-extender": "get",
        },
        option="attach.enabled=true",
    ),
)
NO_REBIND: Final = Cannot(
    says="change the devices of a bound pod, or give devices by CDI",
    policies=("dovetail-pods", "dovetail-bindings"),
)

_GATEWAY_READS: Final = (
    "gpujobs.dovetail.dev",
    "gpunodes.dovetail.dev",
    "gpuquotas.dovetail.dev",
    "jobs.batch",
    "nodes",
    "pods",
    "nodepools.karpenter.sh",
    "resourceslices.resource.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
)

TABLE: Final = (
    Stolen(
        account="dovetail-operator",
        can=(
            Can(
                says="run pods in any namespace, with any account, Secret and image there: it is worth as much as the "
                "most powerful account of any namespace",
                rights={"jobs.batch": "get list watch create patch delete", "services": "get list watch create"},
            ),
            Can(
                says="create, change and delete any GPUJob, write its status, and so disturb every queue",
                rights={
                    "gpujobs.dovetail.dev": "get list watch create patch delete",
                    "gpujobs.dovetail.dev/status": "patch update",
                    "gpujobs.dovetail.dev/finalizers": "update",
                    "gpuquotas.dovetail.dev/status": "patch",
                },
            ),
            Can(
                says="evict any pod, within its PodDisruptionBudget, and write how many pods such a budget lets end",
                rights={"pods/eviction": "create", "poddisruptionbudgets.policy/status": "patch"},
            ),
            Can(
                says="open the gate of a pod in the queue, and announce a preemption to a GPUJob's pod",
                rights={"pods": "patch", "pods/status": "patch"},
            ),
            Can(
                says="suspend or start any JobSet, RayJob, RayCluster, TrainJob and MPIJob, and change what they run",
                rights={
                    "jobsets.jobset.x-k8s.io": "list watch patch",
                    "rayjobs.ray.io": "list watch patch",
                    "rayclusters.ray.io": "list watch patch",
                    "trainjobs.trainer.kubeflow.org": "list watch patch",
                    "mpijobs.kubeflow.org": "list watch patch",
                },
            ),
            Can(
                says="say of any PodGroup and PodGang that its pods are scheduled, or why not",
                rights={
                    "podgroups.scheduling.k8s.io": "list watch",
                    "podgroups.scheduling.k8s.io/status": "patch",
                    "podgangs.scheduler.grove.io": "list watch",
                    "podgangs.scheduler.grove.io/status": "patch",
                },
            ),
            Can(
                says="read all pods with their environment, logs, events, queries of the history, nodes and quotas",
                rights={
                    "pods": "list watch",
                    "pods/log": "get",
                    "leaderworkersets.leaderworkerset.x-k8s.io": "list watch",
                    "events": "create list watch",
                    "nodes": "list watch",
                    "namespaces": "get",
                    "gpunodes.dovetail.dev": "list watch",
                    "gpuquotas.dovetail.dev": "list watch",
                    "nodepools.karpenter.sh": "list watch",
                    "poddisruptionbudgets.policy": "get list watch",
                    "resourceslices.resource.k8s.io": "list watch",
                    "workloads.kueue.x-k8s.io": "list watch",
                    "historyqueries.dovetail.dev": "list watch delete",
                    "historyqueries.dovetail.dev/status": "patch",
                },
            ),
            Can(
                says="lift the limits on GPUs of Dovetail that follow a ResourceQuota on a vendor's, or set them to 0",
                rights={"resourcequotas": "list watch create patch delete"},
            ),
            Can(
                says="make an autoscaler add nodes",
                rights={
                    "podtemplates": "create",
                    "provisioningrequests.autoscaling.x-k8s.io": "list watch create delete",
                },
            ),
            Can(
                says="invent tenants for agents, end the active operator's term, and falsify job numbers and estimates",
                rights={
                    "gpunodetenants.dovetail.dev": "list watch create update delete",
                    "leases.coordination.k8s.io": "create",
                    "leases.coordination.k8s.io:dovetail-operator": "get update",
                    "configmaps": "create",
                    "configmaps:dovetail-config": "list watch",
                    **{
                        f"configmaps:dovetail-{name}": "get patch"
                        for name in ("job-numbers", "estimates", "device-indexes", "mix-of-jobs", "moves")
                    },
                },
            ),
        ),
        cannot=(
            NO_SECRETS_ITSELF,
            Cannot(
                says="create or delete pods itself, or run anything in them",
                lacks={"pods": "create update delete", "pods/exec": "create", "pods/attach": "create"},
            ),
            Cannot(
                says="change a pod beyond its gate, or the devices of any pod",
                policies=("dovetail-pods",),
            ),
            Cannot(says="bind a pod", lacks={"pods/binding": "create"}),
            Cannot(
                says="raise a quota or uncordon a device",
                lacks={"gpuquotas.dovetail.dev": WRITES, "gpunodes.dovetail.dev": WRITES},
            ),
            NO_RIGHTS,
            NO_HOOKS,
        ),
    ),
    Stolen(
        account="dovetail-scheduler",
        can=(
            *SCHEDULING,
            Can(
                says="delete any pod and write its status, as Kubernetes' own role for kube-scheduler allows",
                rights={"leases.coordination.k8s.io:dovetail-scheduler": "get update"},
                roles=("system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"),
            ),
        ),
        cannot=(NO_SECRETS, NO_REBIND, NO_RIGHTS, NO_HOOKS),
    ),
    Stolen(
        account="dovetail-extender",
        exists="with `attach.enabled`",
        can=SCHEDULING,
        cannot=(NO_SECRETS, NO_POD_CHANGES, NO_REBIND, NO_RIGHTS, NO_HOOKS),
    ),
    Stolen(
        account="dovetail-agent",
        can=(
            Can(
                says="report wrong measurements and amounts of its own node, and so end tenants that share its devices",
                rights={
                    "gpunodes.dovetail.dev": "list watch create patch",
                    "gpunodes.dovetail.dev/status": "patch",
                    "nodes/status": "patch",
                },
            ),
            Can(
                says="read all nodes, and which pods each GPU node has with what promise, without their environment",
                rights={"nodes": "list watch", "gpunodetenants.dovetail.dev": "list watch"},
            ),
            Can(
                says="create events about its own node and any pod, which name its node as their source",
                rights={"events": "create"},
            ),
        ),
        cannot=(
            Cannot(
                says="read pods, GPUJobs, ConfigMaps or Secrets",
                lacks=dict.fromkeys(("pods", "gpujobs.dovetail.dev", "configmaps", "secrets"), READS),
            ),
            Cannot(
                says="write for another node, or anything of its Node but Dovetail's amounts",
                policies=("dovetail-agents",),
            ),
            NO_POD_CHANGES,
            Cannot(says="evict a pod", lacks={"pods/eviction": "create"}),
            NO_RIGHTS,
            NO_HOOKS,
        ),
    ),
    Stolen(
        account="dovetail-mps",
        exists="with `mps.enabled`",
        can=(
            Can(
                says="read which pods each GPU node has with what promise, without their environment",
                rights={"gpunodetenants.dovetail.dev": "list watch"},
            ),
            Can(
                says="create events about its own node and any pod, which name its node as their source",
                rights={"events": "create"},
            ),
        ),
        cannot=(
            Cannot(says="read pods or Secrets", lacks={"pods": READS, "secrets": READS}),
            NO_POD_CHANGES,
            NO_WRITES,
            NO_RIGHTS,
            NO_HOOKS,
        ),
    ),
    Stolen(
        account="dovetail-gateway",
        exists="with `gateway.enabled`, the default",
        can=(
            Can(
                says="read all pods with their environment, GPUJobs, Jobs, RoleBindings, nodes and quotas",
                rights={
                    **dict.fromkeys(_GATEWAY_READS, "list watch"),
                    **{
                        f"configmaps:dovetail-{name}": "list watch"
                        for name in ("config", "device-indexes", "mix-of-jobs", "mix-of-pods", "estimates")
                    },
                },
            ),
            Can(
                says="act as the account that this value names, with its rights below",
                rights={"serviceaccounts/token:scripts": "create"},
                option=LEGACY,
            ),
        ),
        cannot=(NO_SECRETS, NO_POD_CHANGES, NO_WRITES, NO_HOOKS, NO_RIGHTS),
    ),
    Stolen(
        account="scripts",
        exists="with `gateway.legacyServiceAccount`, which names it",
        can=(
            Can(
                says="run pods in `gateway.allocationNamespace`, with any account, Secret and image there; create, "
                "change and delete any GPUJob there",
                rights={"gpujobs.dovetail.dev": "get list create patch delete", "pods": "create"},
                option=LEGACY,
            ),
            Can(
                says="cordon devices, and change how many tasks share one",
                rights={"gpunodes.dovetail.dev": "patch"},
                option=LEGACY,
            ),
        ),
        cannot=(NO_SECRETS_ITSELF, NO_HOOKS, NO_RIGHTS),
    ),
    Stolen(
        account="dovetail-certificates",
        can=(
            Can(
                says="read and replace the webhook's certificate, and read the CA that signs it: it can stand in for "
                "the webhook where it also gets the webhook's traffic",
                rights={"secrets:dovetail-webhook": "get create patch", "secrets:dovetail-webhook-ca": "get"},
            ),
            Can(
                says="stand in for the extender or its kube-scheduler in the same way",
                rights={f"secrets:dovetail-extender{name}": "get create patch" for name in ("", "-client", "-ca")},
                option="attach.enabled=true",
            ),
        ),
        cannot=(
            Cannot(says="read another Secret", lacks={"secrets:other": READS}),
            NO_POD_CHANGES,
            NO_WRITES,
            NO_HOOKS,
            NO_RIGHTS,
        ),
    ),
    Stolen(
        account="dovetail-trust",
        exists="while Helm runs the hook",
        can=(
            Can(
                says="change the webhook configuration as it likes: read every Secret that is written and change "
                "every object, for those seconds",
                rights={"mutatingwebhookconfigurations.admissionregistration.k8s.io:dovetail": "get patch"},
            ),
            Can(
                says="replace the webhook's CA and read the webhook's certificate",
                rights={"secrets:dovetail-webhook-ca": "get create patch", "secrets:dovetail-webhook": "get"},
            ),
        ),
        cannot=(
            Cannot(says="read another Secret", lacks={"secrets:other": READS}),
            NO_POD_CHANGES,
            NO_WRITES,
            NO_RIGHTS,
        ),
    ),
    Stolen(
        account="dovetail-cleanup",
        exists="while Helm runs the clean-up after an uninstall",
        can=(
            Can(says="remove resources from any node's capacity", rights={"nodes": "list", "nodes/status": "patch"}),
            Can(
                says="delete any batch Job and request for nodes",
                rights={
                    "jobs.batch": "list delete",
                    "provisioningrequests.autoscaling.x-k8s.io": "list delete",
                },
            ),
            Can(
                says="delete what the release left, and read its certificates",
                rights={
                    "pods": "list",
                    "pods:dovetail-test": "delete",
                    "gpujobs.dovetail.dev": "list",
                    **{
                        f"{each}.dovetail.dev": "list delete"
                        for each in ("gpunodes", "gpunodetenants", "historyqueries")
                    },
                    **{
                        f"leases.coordination.k8s.io:dovetail-{name}": "delete"
                        for name in ("operator", "scheduler", "extender")
                    },
                    **{
                        f"configmaps:dovetail-{name}": "delete"
                        for name in (
                            "job-numbers",
                            "estimates",
                            "moves",
                            "device-indexes",
                            "mix-of-jobs",
                            "mix-of-pods",
                        )
                    },
                    **{
                        f"secrets:dovetail-{name}": "get delete"
                        for name in ("webhook", "webhook-ca", "extender", "extender-client", "extender-ca")
                    },
                },
            ),
        ),
        cannot=(
            Cannot(says="read another Secret", lacks={"secrets:other": READS}),
            Cannot(
                says="delete a GPUJob or a quota",
                lacks={"gpujobs.dovetail.dev": WRITES, "gpuquotas.dovetail.dev": WRITES},
            ),
            Cannot(
                says="create or change pods or Jobs",
                lacks={"pods": "create update patch", "jobs.batch": "create update patch"},
            ),
            NO_RIGHTS,
            NO_HOOKS,
        ),
    ),
    Stolen(
        account="dovetail-test",
        exists="while `helm test` runs",
        can=(
            Can(
                says="run pods in the release's namespace, with any account and Secret there",
                rights={
                    "gpujobs.dovetail.dev": "create",
                    "gpujobs.dovetail.dev:dovetail-release-test": "get delete",
                    "pods": "create",
                },
            ),
            Can(
                says="read the CRDs and Leases of the release",
                rights={
                    **{
                        f"customresourcedefinitions.apiextensions.k8s.io:{each}.dovetail.dev": "get"
                        for each in ("gpujobs", "gpunodes", "gpunodetenants", "gpuquotas", "historyqueries")
                    },
                    **{
                        f"leases.coordination.k8s.io:dovetail-{name}": "get"
                        for name in ("operator", "scheduler", "extender")
                    },
                },
            ),
        ),
        cannot=(
            NO_SECRETS_ITSELF,
            NO_RIGHTS,
            NO_HOOKS,
            Cannot(says="read or change nodes", lacks={"nodes": f"{READS} {WRITES}"}),
        ),
    ),
)


def key(right: Right) -> str:
    """A right's resource as the sentences name it."""
    base = qualified(right.resource, group=right.group)
    return f"{base}:{right.name}" if right.name else base


def covers(rights: Verbs, right: Right) -> bool:
    """Whether one of these is the right."""
    return right.verb in rights.get(key(right), "").split()


def table() -> str:
    """The sentences as a table in Markdown."""
    rows = [f"| `{each.account}` | {each.exists} | {_list(each.can)} | {_list(each.cannot)} |" for each in TABLE]
    return "\n".join(["| Account | Exists | Its token can | It cannot |", "| --- | --- | --- | --- |", *rows])


def _list(sentences: tuple[Can, ...] | tuple[Cannot, ...]) -> str:
    return "; ".join(f"{each.says}{_why(each)}" for each in sentences)


def _why(sentence: Can | Cannot) -> str:
    if isinstance(sentence, Cannot) and sentence.policies:
        return f" ({', '.join(f'`{name}`' for name in sentence.policies)})"
    return f" (with `{sentence.option.partition('=')[0]}`)" if isinstance(sentence, Can) and sentence.option else ""


def written(page: str) -> str:
    """The page with the table in its place."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
