"""`dovetail simulate`: a recorded workload under several policies."""

from typing import Annotated

import typer

from dovetail_cli.options import Output


def simulate(
    *,
    nodes: Annotated[str, typer.Option("--nodes", metavar="CSV", help="Nodes: sn, cpu_milli, memory_mib, gpu, model.")],
    pods: Annotated[
        str,
        typer.Option("--pods", metavar="CSV", help="Pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec."),
    ],
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals", metavar="FILE", help="Pod names in order of arrival, .gz or not [drawn from --pods]."
        ),
    ] = None,
    node_order: Annotated[
        str | None, typer.Option("--node-order", metavar="FILE", help="Node names in the order that settles ties.")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAMES", help="Policies, such as ph,fgd; an unknown one lists them all.")
    ] = "ph,fgd,bestfit,gpupacking",
    departures: Annotated[
        float | None,
        typer.Option(
            "--departures", metavar="LOAD", help="Let pods leave: offered load, such as 1.0; average allocation."
        ),
    ] = None,
    tied: Annotated[
        float, typer.Option("--tied", metavar="PERCENT", help="Tie this many of the GPU pods to one model.")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all that is drawn.")] = 42,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", help="Policies that run at a time [one for each core].")
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Draw the curves: .png, .svg or .pdf.")
    ] = None,
    form: Output = "table",
) -> None:
    """Run a trace under several policies: allocation, fragmentation and failures by load, and placements a second.

    Without --arrivals pods are drawn from --pods until they ask for 130 % of the GPUs, or, with --departures, for four
    mean lifetimes. -o json prints percent: allocation and fragmentation by percent arrived.
    """
    from dovetail_cli import output, simulating

    output.check_format(form)
    names = simulating.policy_names(policy)
    picture = simulating.check_plot(plot)
    scene = simulating.scene(
        nodes=nodes,
        pods=pods,
        arrivals=arrivals,
        node_order=node_order,
        departures=departures,
        tied=tied,
        seed=seed,
    )
    outcomes = simulating.run(names, scene, processes=simulating.check_processes(processes, policies=len(names)))
    print(simulating.text(outcomes, form=form, departures=scene.departures))
    if picture is not None:
        simulating.save_plot(outcomes, picture, departures=scene.departures)
