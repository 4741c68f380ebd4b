"""`dovetail quota set|delete` and `dovetail limits set|unset`: changes at run time."""

from typing import Annotated

import typer

from dovetail_cli.ui import completers
from dovetail_cli.ui.options import Context, Kubeconfig

Amount = str | None
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Only this device, such as node-1:0 or GPU-…; repeatable.",
        autocompletion=completers.DEVICES,
    ),
]


def set_quota(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The GPUQuota; it is created if it does not exist.")],
    *,
    namespaces: Annotated[
        str | None, typer.Option("--namespaces", metavar="NAMES", help="Namespaces that it applies to, or all.")
    ] = None,
    users: Annotated[
        str | None, typer.Option("--users", metavar="NAMES", help="Users that it applies to, or all.")
    ] = None,
    projects: Annotated[
        str | None, typer.Option("--projects", metavar="NAMES", help="Projects (label dovetail.dev/project), or all.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="QUOTA", help="The GPUQuota above it in the tree, or none.")
    ] = None,
    guaranteed: Annotated[
        Amount, typer.Option("--guaranteed", metavar="N", help="GPUs that they can have at any time, or none.")
    ] = None,
    per: Annotated[
        str | None, typer.Option("--per", metavar="WHOM", help="Whose limit it is: Together, Namespace or User.")
    ] = None,
    gpus: Annotated[Amount, typer.Option("--gpus", metavar="N", help="GPUs in use at a time, or none.")] = None,
    running_jobs: Annotated[
        Amount, typer.Option("--running-jobs", metavar="N", help="Jobs that run at a time, or none.")
    ] = None,
    queued_jobs: Annotated[
        Amount, typer.Option("--queued-jobs", metavar="N", help="Jobs in the queue, or none.")
    ] = None,
    shares: Annotated[Amount, typer.Option("--shares", metavar="N", help="Weight in fair share, or none.")] = None,
    max_priority: Annotated[
        Amount, typer.Option("--max-priority", metavar="0-255", help="The highest priority of a job, or none.")
    ] = None,
    preemption_policy: Annotated[
        str | None,
        typer.Option(
            "--preemption-policy",
            metavar="POLICY",
            help="Whether the jobs may preempt running ones: PreemptLowerPriority or Never.",
        ),
    ] = None,
    pools: Annotated[
        str | None, typer.Option("--pools", metavar="NAMES", help="Only nodes of these pools, or all.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Create a GPUQuota or change it; what you do not name stays. The change counts at once."""
    from dovetail_cli.nodes import quota_changes

    asked = quota_changes.read(
        lists={"--namespaces": namespaces, "--users": users, "--projects": projects, "--pools": pools},
        amounts={
            "--guaranteed": guaranteed,
            "--gpus": gpus,
            "--running-jobs": running_jobs,
            "--queued-jobs": queued_jobs,
            "--shares": shares,
            "--max-priority": max_priority,
        },
        per=per,
        preemption_policy=preemption_policy,
        parent=parent,
    )
    print(quota_changes.apply(name, changes=asked, kubeconfig=kubeconfig, context=context))


def delete_quotas(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="The GPUQuotas.")],
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Delete GPUQuotas: their limits no longer count."""
    from dovetail_cli.nodes import quota_changes

    print(quota_changes.delete(names, kubeconfig=kubeconfig, context=context))


def set_limits(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE…", help="Keys, as `dovetail limits` lists them.", autocompletion=completers.LIVE_KEYS
        ),
    ],
    *,
    device: Devices = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Change the policy or limits of the cluster. The change counts at once, without a restart."""
    from dovetail_cli.nodes import limits as live

    wanted = live.parse(words)
    print("\n".join(live.change(wanted, devices=device or (), kubeconfig=kubeconfig, context=context)))


def unset_limits(
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY…", help="Keys, as `dovetail limits` lists them.", autocompletion=completers.LIVE_KEYS
        ),
    ],
    *,
    device: Devices = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Put keys back to their defaults, or a device's limits to those of the cluster, at once."""
    from dovetail_cli.nodes import limits as live

    wanted = dict.fromkeys(live.check_keys(keys))
    print("\n".join(live.change(wanted, devices=device or (), kubeconfig=kubeconfig, context=context)))
