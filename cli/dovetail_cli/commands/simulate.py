"""`dovetail simulate`: a recorded workload under several policies."""

import sys
from typing import Annotated

import typer

from dovetail_cli.ui.options import Output


def simulate(
    *,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="CSV", help="Nodes: sn, cpu_milli, memory_mib, gpu, model.")
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="FILE", help="A cluster and its jobs, from `dovetail snapshot`."),
    ] = None,
    mig_profile: Annotated[
        str | None,
        typer.Option(
            "--mig-profile", metavar="PROFILE", help="The snapshot's MIG instances of a profile in place of its GPUs."
        ),
    ] = None,
    pods: Annotated[
        str | None,
        typer.Option(
            "--pods",
            metavar="CSV",
            help="Pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, and gpu_spec if any [the snapshot's].",
        ),
    ] = None,
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
        str,
        typer.Option(
            "--policy",
            metavar="NAMES",
            help="Policies, such as ph,fgd; an unknown one lists them all [ph,fgd,bestfit,gpupacking].",
        ),
    ] = "",
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Play GPU pods as GPUJobs through the queue; --policy: ph, fgd, bestfit."),
    ] = False,
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
    """Run a trace or a snapshot under several policies and compare them.

    Shows allocation, fragmentation and failures by load, and placements/s.

    Without --arrivals pods are drawn from --pods until they ask for 130 % of the GPUs, or, with --departures, for four
    mean lifetimes. A snapshot begins as full as it is; without --pods its waiting jobs arrive, then a mix of all its
    jobs. With --jobs, the queue's own code plans each pod with GPUs as a GPUJob when it arrives, the extender's chooses
    the devices, and a job that does not fit is passed over. -o json prints percent: allocation and fragmentation by
    percent arrived.
    """
    from dovetail_cli.simulation import run
    from dovetail_cli.ui import output

    output.check_format(form)
    names = run.policy_names(policy, jobs=jobs)
    picture = run.check_plot(plot)
    # After `simulating`, which tells what to install where something is missing.
    from dovetail_cli.simulation import scenario

    given = scenario.Given(
        nodes=nodes,
        snapshot=snapshot,
        mig_profile=mig_profile,
        pods=pods,
        arrivals=arrivals,
        node_order=node_order,
        departures=departures,
        tied=tied,
        seed=seed,
        jobs=jobs,
    )
    at_a_time = run.check_processes(processes, policies=len(names))
    given_scene = scenario.scene(given)
    outcomes = run.run(names, scene=given_scene.scene, processes=at_a_time)
    leaving = given_scene.scene.departures
    print(run.text(outcomes, form=form, departures=leaving, said=given_scene.said))
    if form != "table":
        print("\n".join(given_scene.said), file=sys.stderr)
    if picture is not None:
        run.save_plot(outcomes, path=picture, departures=leaving)
