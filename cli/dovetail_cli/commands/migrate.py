"""`dovetail migrate`: the chart's values for scripts of another system.

A module of its own: `app` loads it by name as a command; `gflowd` takes two options from it.
"""

import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Print the chart's values with which scripts of another system need a new URL only.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Train = Annotated[
    str | None,
    typer.Option("--train", metavar="LINE", help="What a training runs, with {train_path} for a field of its request."),
]
Infer = Annotated[str | None, typer.Option("--infer", metavar="LINE", help="What an inference runs, likewise.")]


@app.command()
def v1() -> None:
    """Print the values for scripts of a GPU manager (/api/v1/gpu).

    They are a gateway, and an account for requests without a token.
    """
    _show({})


@app.command()
def v2(
    *,
    image: Annotated[str, typer.Option("--image", help="Container image that has the programs.")],
    train: Train = None,
    infer: Infer = None,
    workdir: Annotated[
        str, typer.Option("--workdir", metavar="/PATH", help="Folder that relative paths count from [the image's].")
    ] = "",
    volume: Annotated[
        list[str] | None,
        typer.Option("--volume", metavar="PVC:/PATH[:ro]", help="A PersistentVolumeClaim at this path; repeatable."),
    ] = None,
) -> None:
    """Print the values for scripts of a model service (/api/v2): also what its tasks run."""
    from dovetail_cli.submit import pod_options
    from dovetail_cli.tasks import command_line
    from dovetail_cli.ui.errors import UsageError

    if train is None and infer is None:
        raise UsageError("nothing says what tasks run: give --train, --infer or both")
    if workdir and not workdir.startswith("/"):
        raise UsageError(f'--workdir "{workdir}": write a path of the container, such as --workdir /data')
    place = command_line.TaskPlace(image=image, workdir=workdir, volumes=pod_options.volumes(volume or ()))
    _show({"taskTemplates": command_line.task_templates(train=train, infer=infer, place=place)})


def _show(more: dict[str, Any]) -> None:
    import yaml

    gateway = {"enabled": True, "legacyServiceAccount": "scripts", **more}
    print(yaml.safe_dump({"gateway": gateway}, sort_keys=False), end="")
    print(
        "Save these values as migrate.yaml, then: helm upgrade dovetail helm/dovetail --namespace dovetail-system "
        "--reuse-values -f migrate.yaml",
        file=sys.stderr,
    )
