"""`dovetail explain pod|job|request`: every node's answer, and what would have to change."""

from typing import Annotated

from dovetail_cli.ui import completers
from dovetail_cli.ui.command_line import Group, argument, option
from dovetail_cli.ui.listing_options import Context, Gateway, Kubeconfig, Output

Namespace = Annotated[
    str | None,
    option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace [that of the kubeconfig's context].",
        complete=completers.NAMESPACES,
    ),
]
Everything = Annotated[bool, option("--all", help="All nodes, not only the first 20.")]


def pod(
    name: Annotated[str, argument(metavar="NAME", help="The pod.")],
    *,
    namespace: Namespace = None,
    everything: Everything = False,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Why a pod is where it is, or waits."""
    from dovetail_cli.explain import reads, render
    from dovetail_cli.ui import output

    output.check_format(form)
    found = reads.explain_subject(
        reads.find_pod(name), kubeconfig=kubeconfig, context=context, namespace=namespace, for_people=form == "table"
    )
    print(render.render(found, form=form, everything=everything))


def job(
    name: Annotated[
        str, argument(metavar="NAME|NUMBER", help="The job; @ is your last one.", complete=completers.JOBS)
    ],
    *,
    namespace: Namespace = None,
    everything: Everything = False,
    form: Output = "table",
    gateway: Gateway = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Why a job is where it is, or waits.

    If you may not list the whole cluster, the gateway answers, without the names of other tenants.
    """
    from dovetail_cli.explain import reads, render
    from dovetail_cli.ui import output

    output.check_format(form)
    found = reads.explain_job(
        name, gateway=gateway, kubeconfig=kubeconfig, context=context, namespace=namespace, for_people=form == "table"
    )
    print(render.render(found, form=form, everything=everything))


def request(
    text: Annotated[str, argument(metavar="REQUEST", help="Such as 2, 0.5, '2(V100)', '8G,0.5'.")],
    *,
    mode: Annotated[str | None, option("--mode", metavar="MODE", help="Exclusive, Fractional or TimeShared.")] = None,
    policy: Annotated[str | None, option("--policy", metavar="POLICY", help="Spread, Pack or Balanced.")] = None,
    cpu: Annotated[
        str | None, option("--cpu", metavar="CPU", help="CPU in addition to the GPUs, such as 4 or 500m.")
    ] = None,
    memory: Annotated[
        str | None, option("--memory-host", metavar="M", help="Memory in addition to the GPUs, such as 16Gi.")
    ] = None,
    workload: Annotated[
        str | None, option("--workload", metavar="KIND", help="Training or Inference: tenant limits apply.")
    ] = None,
    namespace: Namespace = None,
    everything: Everything = False,
    form: Output = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Where a request would go now, or what it would wait for. Nothing is submitted."""
    from dovetail_cli.explain import reads, render
    from dovetail_cli.ui import output

    output.check_format(form)
    asked = reads.find_request(text, mode=mode, policy=policy, cpu=cpu, memory=memory, workload=workload)
    found = reads.explain_subject(
        asked, kubeconfig=kubeconfig, context=context, namespace=namespace, for_people=form == "table"
    )
    print(render.render(found, form=form, everything=everything))


app = Group(
    help="Why something is where it is, or waits: every node's answer, and what would have to change. "
    "`dovetail explain 7` is `dovetail explain job 7`.",
    commands={"pod": pod, "job": job, "request": request},
    default="job",
)
