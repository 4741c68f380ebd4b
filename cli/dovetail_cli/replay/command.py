"""`dovetail replay`: submit the jobs of a recorded workload."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dovetail_cli.ui.options import DOCUMENTS, Context, Kubeconfig, OutputOfOne


def replay(
    *,
    pods: Annotated[Path, typer.Option("--pods", metavar="CSV", help="The trace's pods.")],
    nodes: Annotated[
        Path | None, typer.Option("--nodes", metavar="CSV", help="The trace's nodes, for the sandbox.")
    ] = None,
    limit_pods: Annotated[
        int | None, typer.Option("--limit-pods", metavar="N", min=1, help="Only the first N.")
    ] = None,
    limit_nodes: Annotated[
        int | None, typer.Option("--limit-nodes", metavar="N", min=1, help="Only the first N.")
    ] = None,
    speedup: Annotated[
        float, typer.Option("--speedup", metavar="X", help="Run times are divided by this; gaps are left out.")
    ] = 10_000.0,
    min_run: Annotated[str, typer.Option("--min-run", metavar="SPAN", help="No job runs shorter than this.")] = "5s",
    max_run: Annotated[
        str | None, typer.Option("--max-run", metavar="SPAN", help="No job runs longer than this.")
    ] = None,
    sandbox: Annotated[
        str, typer.Option("--sandbox", metavar="NAME", help="The sandbox to bring up, or to use if it runs.")
    ] = "replay",
    here: Annotated[
        bool, typer.Option("--here", help="On the present cluster with the nodes it has, in no sandbox.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the sandbox up at the end.")] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="Namespace of the jobs; created if it is not there.")
    ] = "replay",
    form: OutputOfOne = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Submit a GPUJob for each pod of a trace, in order of arrival, and follow all to the end.

    Exit code 1 if a job failed, is left waiting for something that could come, or an audit found anything.
    """
    from dovetail_cli.replay import runner
    from dovetail_cli.replay.jobs import Pace
    from dovetail_cli.ui import job_names, output, times
    from dovetail_cli.ui.errors import UsageError

    output.check_format(form, allowed=DOCUMENTS)
    if speedup <= 0:
        raise UsageError(f"--speedup {speedup:g}: must be above 0")
    if here and (nodes or limit_nodes):
        raise UsageError("--nodes and --limit-nodes are for a sandbox: with --here the cluster has its own nodes")
    if not here and (kubeconfig or context):
        raise UsageError("--kubeconfig and --context need --here: otherwise the replay has a sandbox of its own")
    job_names.check_namespace(namespace)
    pace = Pace(
        speedup=speedup,
        shortest_seconds=times.span_seconds(min_run, option="--min-run"),
        longest_seconds=None if max_run is None else times.span_seconds(max_run, option="--max-run"),
    )
    if pace.longest_seconds is not None and pace.longest_seconds < pace.shortest_seconds:
        raise UsageError(f"--max-run {max_run}: must not be below --min-run {min_run}")
    jobs = runner.read_jobs(pods, limit=limit_pods, pace=pace, namespace=namespace)
    place = runner.Place(
        sandbox=None if here else sandbox,
        nodes=nodes,
        limit_nodes=limit_nodes,
        keep=keep,
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
    )
    summary = runner.drive(jobs, place=place, title="Replay")
    if form == "table":
        typer.echo(summary.text(title="Replay"))
    else:
        typer.echo(output.as_json(summary.record()) if form == "json" else output.as_yaml(summary.record()))
    sys.stdout.flush()
    if not summary.good:
        raise typer.Exit(1)
