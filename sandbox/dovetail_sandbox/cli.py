"""`dovetail sandbox`: up, down, status, fetch, logs, restart, token, console. Only texts and tables."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from dovetail_cli.ui.errors import CommandError, MissingError, UsageError
from dovetail_sandbox import access, cluster, progress, state, user_token
from dovetail_sandbox.cluster import Cluster, Status
from dovetail_sandbox.errors import InvalidInputError, NotRunningError, SandboxError
from dovetail_sandbox.localnode import queue as localnode_queue
from dovetail_sandbox.localnode import setup as localnode
from dovetail_sandbox.state import State

app = typer.Typer(
    help="A real Kubernetes control plane with simulated GPU nodes, as processes of this machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Kubernetes = Annotated[
    str | None, typer.Option("--kubernetes", help="Minor version of the control plane, such as 1.34.")
]
Name = Annotated[str, typer.Option("--name", help="Which sandbox; several can be up side by side.")]


class Output(StrEnum):
    """The output formats of `status`."""

    text = "text"
    json = "json"


@app.command()
def up(
    *,
    name: Name = state.DEFAULT_NAME,
    nodes: Annotated[
        Path | None,
        typer.Option(help="Simulated nodes: YAML node sets, or a trace's CSV. Default: 8 GPU nodes, 1 without."),
    ] = None,
    limit_nodes: Annotated[int | None, typer.Option(help="Only the first N of these nodes.")] = None,
    local: Annotated[
        bool, typer.Option("--local", help="This machine is the node: jobs run as your processes (docs/local.md).")
    ] = False,
    real_node: Annotated[
        bool, typer.Option("--real-node", help="Add a real kubelet node, where this machine can.")
    ] = False,
    bare: Annotated[
        bool, typer.Option("--bare", help="Only control plane and nodes: install the chart with Helm yourself.")
    ] = False,
    values: Annotated[
        Path | None, typer.Option("--values", help="A file of values of the Helm chart, as in `helm --values`.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A value of the Helm chart, as in `helm --set`.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave a component out, to run your own: operator, extender, agent, webhook, gateway, kube-scheduler."
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help="Also run another project's controller: kueue, jobset, trainer, lws (docs/alongside.md)."
        ),
    ] = None,
    request_log: Annotated[
        bool, typer.Option("--request-log", help="Record each request of Dovetail's accounts to the API server.")
    ] = False,
    kubernetes: Kubernetes = None,
    feature_gates: Annotated[
        str, typer.Option("--feature-gates", help="Feature gates of the control plane, such as GenericWorkload=true.")
    ] = "",
    runtime_config: Annotated[
        str, typer.Option("--runtime-config", help="APIs of the API server, such as scheduling.k8s.io/v1beta1=true.")
    ] = "",
    authentication_config: Annotated[
        Path | None,
        typer.Option(
            help="An AuthenticationConfiguration for the API server, to try single sign-on (docs/console.md)."
        ),
    ] = None,
) -> None:
    """Start a sandbox; returns when everything in it is ready. One that is up already stays as it is."""
    from dovetail_sandbox import bringup

    with _converted_errors():
        made = bringup.up(
            name,
            report=progress.reporter(),
            nodes_file=nodes,
            limit_nodes=limit_nodes,
            local_node=local,
            real_node=real_node,
            bare=bare,
            values_file=values,
            overrides=set_ or (),
            without=without or (),
            with_=with_ or (),
            request_log=request_log,
            kubernetes=kubernetes,
            authentication=authentication_config,
            feature_gates=feature_gates,
            runtime_config=runtime_config,
        )
        _show_up(made)


@app.command()
def down(
    name: Name = state.DEFAULT_NAME,
    all_: Annotated[bool, typer.Option("--all", help="Every sandbox.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the queue of a local node too.")] = False,
) -> None:
    """End a sandbox: no process and no file of it stays, but for the queue of a local node."""
    with _converted_errors():
        for each in state.names() if all_ else [name]:
            typer.echo(_ended(cluster.get(each), purge=purge))


@app.command()
def status(
    name: Name = state.DEFAULT_NAME,
    output: Annotated[Output, typer.Option("--output", "-o", help="text or json")] = Output.text,
) -> None:
    """Show a sandbox and its components. Exit status 1 unless all of it runs."""
    with _converted_errors():
        found = cluster.get(name).status()
    if output is Output.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _show(found)
    raise typer.Exit(0 if found.phase == "Ready" else 1)


@app.command()
def fetch(
    programs: Annotated[list[str] | None, typer.Argument(help="More programs, such as kubeconform.")] = None,
    real_node: Annotated[
        bool, typer.Option("--real-node", help="Also what a real node runs, where this machine can.")
    ] = False,
    kubernetes: Kubernetes = None,
) -> None:
    """Bring the programs of a sandbox into the cache, so that nothing waits for them later."""
    from dovetail_sandbox import bringup

    with _converted_errors():
        names = bringup.fetch(programs or (), real_node=real_node, report=progress.reporter(), kubernetes=kubernetes)
        typer.echo(f"{len(names)} programs are at hand: {', '.join(names)}.")


@app.command()
def logs(
    component: Annotated[
        str, typer.Argument(help="Such as operator, extender, agent, webhook, kube-scheduler, kube-apiserver.")
    ],
    name: Name = state.DEFAULT_NAME,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows.")] = False,
) -> None:
    """Print the log of a component."""
    with _converted_errors():
        path = cluster.get(name).log_file(component)
        for text in _contents(path, follow=follow):
            sys.stdout.write(text)
            sys.stdout.flush()


@app.command()
def restart(
    component: Annotated[
        str,
        typer.Argument(help="operator, extender, agent, webhook, certificates, gateway or kube-scheduler."),
    ],
    name: Name = state.DEFAULT_NAME,
) -> None:
    """End a component of Dovetail and start it again; returns when it is ready."""
    with _converted_errors():
        made = cluster.get(name)
        made.restart(component)
        typer.echo(f"{component} runs again, as process {made.pid(component)}.")


@app.command()
def token(
    name: Name = state.DEFAULT_NAME,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Of a user with the role `edit` in this namespace alone.")
    ] = "",
) -> None:
    """Print a bearer token for the gateway: yours, or for 8 hours that of one namespace's user."""
    with _converted_errors():
        made = cluster.get(name)
        made.state()
        given = access.tenant_token(made.kubeconfig, namespace=namespace) if namespace else ""
        typer.echo(given or user_token.read(made.user_token))


@app.command()
def console(name: Name = state.DEFAULT_NAME) -> None:
    """Print the address of the sandbox's console, and a code that signs one browser in as the kubeconfig's user."""
    from dovetail_cli import consoles

    with _converted_errors():
        made = cluster.get(name)
        made.state()
        if not (url := made.status().gateway):
            raise CommandError(f"the sandbox {name} has no gateway, and so no console")
        consoles.show(consoles.address(url, token=user_token.read(made.user_token)), browser=False)


def _ended(made: Cluster, *, purge: bool) -> str:
    """End a sandbox; the sentence about it."""
    if not localnode_queue.is_kept(made.folder, known=state.read(made.folder)):
        if made.name == state.DEFAULT_NAME and not made.folder.exists():
            return "There was no queue on this machine."
        return f"Sandbox {made.name!r} is gone." if made.down() else f"There was no sandbox {made.name!r}."
    ended = made.halt()
    jobs = {0: "", 1: " 1 running job ended."}.get(ended, f" {ended} running jobs ended.")
    # `gflowd` says itself that the queue of this machine is down.
    own = made.name == state.DEFAULT_NAME
    if not purge:
        is_down = "" if own else f"Sandbox {made.name!r} is down."
        return f"{is_down}{jobs} Its queue is kept in {made.folder}.".strip()
    made.down()
    logs = localnode.purge(made.name)
    is_gone = "" if own else f"Sandbox {made.name!r} is gone."
    return f"{is_gone}{jobs} The logs of its jobs stay in {logs}.".strip()


def _queue_of(name: str) -> str:
    """The queue of a sandbox whose node is this machine. People with one have given it no name."""
    return "The queue of this machine" if name == state.DEFAULT_NAME else f"The queue of sandbox {name!r}"


@contextmanager
def _converted_errors() -> Iterator[None]:
    """Convert the sandbox's errors to those of every command: one text, exit status by kind."""
    try:
        yield
    except InvalidInputError as error:
        raise UsageError(str(error)) from error
    except NotRunningError as error:
        raise MissingError(str(error)) from error
    except SandboxError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _contents(path: Path, *, follow: bool) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            if text := log.read(65_536):
                yield text
            elif not follow or not path.exists():
                return
            else:
                time.sleep(0.2)


def _nodes(found: Status | State) -> str:
    if found.local_node:
        return "jobs run on this machine"
    return f"{found.nodes} simulated nodes with {found.devices} GPUs"


def _show(found: Status) -> None:
    console = Console()
    real = ", 1 real node" if found.real_node else ""
    nodes = "Jobs run on this machine" if found.local_node else _nodes(found)
    called = _queue_of(found.name) if found.local_node else f"Sandbox {found.name!r}"
    console.print(f"{called}: {found.phase}. {nodes}{real}.")
    if found.limits:
        console.print(found.limits, markup=False, highlight=False, soft_wrap=True)
    if found.message:
        console.print(found.message, markup=False, highlight=False)
    if found.phase == "Failed":
        return
    table = Table("Component", "State", "PID", "Restarts", "Last exit", box=None, header_style="bold")
    for each in found.components:
        table.add_row(each.name, each.state, str(each.pid or "-"), str(each.restarts), each.last_exit or "-")
    console.print(table)
    for each in found.components:
        if each.log_tail:
            console.print(f"\nThe end of {each.name}'s log ({each.log}):", markup=False, highlight=False)
            console.print(each.log_tail, markup=False, highlight=False)
    if found.gateway:
        console.print(f"\nREST: {found.gateway}/api/docs", markup=False, highlight=False)
    console.print(f"\nexport KUBECONFIG={found.kubeconfig}", markup=False, highlight=False, soft_wrap=True)


def _show_up(made: cluster.Cluster) -> None:
    if limits := localnode.limits(made.folder):
        typer.echo(limits)
    if not (made.state().local_node and made.name == state.DEFAULT_NAME):
        typer.echo(f"Sandbox {made.name!r} is up: {_nodes(made.state())}.")
        # Commands use the queue of this machine without it.
        typer.echo(f"  export KUBECONFIG={made.kubeconfig}")
    if url := made.status().gateway:
        typer.echo(f"  REST: {url}")
    if made.request_log.exists():
        typer.echo(f"  requests of Dovetail's accounts: {made.request_log}")
