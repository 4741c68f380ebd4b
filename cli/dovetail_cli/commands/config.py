"""`dovetail config`: profiles, what counts in a namespace, and the cluster's configuration."""

from typing import Annotated

import typer

from dovetail_cli.ui.options import DOCUMENTS, Context, Kubeconfig, Namespace, Output, OutputOfOne

app = typer.Typer(
    help="Profiles, gbatch's defaults for jobs on a cluster; and a check of the cluster's configuration.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="image, env.NAME, volumes, workdir, node-selector.LABEL, gateway or upload."),
]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="The profile [$DOVETAIL_PROFILE, else the current one].")
]


@app.command()
def show(
    *,
    profile: Profile = None,
    form: OutputOfOne = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what counts for gbatch, and where each value comes from.

    A value of your profile takes precedence over the namespace's. Options of gbatch take precedence over both.
    """
    from dovetail_cli.submit.profiles import report
    from dovetail_cli.ui import output

    output.check_format(form, allowed=DOCUMENTS)
    print(report.show(profile, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace))


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_(
    key: Key,
    values: Annotated[list[str], typer.Argument(metavar="VALUE…", help="The value; several for volumes.")],
    *,
    profile: Profile = None,
) -> None:
    """Set a value in a profile, such as: dovetail config set image python:3.12.

    Others: `set env.HF_HOME /data/hf`, `set volumes data:/data`, `set workdir /data/runs`, `set node-selector.disk
    nvme`, `set gateway https://gpu.example.org`, `set upload false`.
    """
    from dovetail_cli.submit.profiles import edit, user_file

    name = user_file.change(profile, edit=lambda before: edit.with_value(before, key=key, values=values))
    print(f"Profile {name}: {key} is set.")


@app.command()
def unset(key: Key, *, profile: Profile = None) -> None:
    """Remove a value from a profile, such as: dovetail config unset env.HF_HOME."""
    from dovetail_cli.submit.profiles import edit, user_file

    name = user_file.change(profile, edit=lambda before: edit.without(before, key=key))
    print(f"Profile {name}: {key} is no longer set.")


@app.command()
def use(profile: Annotated[str, typer.Argument(metavar="PROFILE", help="The name of a profile.")]) -> None:
    """Make a profile the current one, such as: dovetail config use vision."""
    from dovetail_cli.submit.profiles import user_file

    user_file.use(profile)
    print(f"The current profile is {profile}.")


@app.command("list")
def list_(*, form: Output = "table") -> None:
    """List your profiles."""
    from dovetail_cli.submit.profiles import report, user_file
    from dovetail_cli.ui import output

    output.check_format(form)
    print(report.listing(user_file.load(user_file.location()), form=form))


@app.command()
def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="gpu_config.yaml, chart values, a ConfigMap, or - for stdin.")
    ],
    *,
    form: Output = "table",
) -> None:
    """Check the configuration of operator, extender, agent, webhook and gateway.

    Shows what differs from the defaults, and whether it counts at once. Exit code 2 if a program would not start with
    it.
    """
    from dovetail_cli.ui import output

    output.check_format(form)
    from dovetail_cli.nodes import config_check

    print(config_check.check(file, form=form))


@app.command("slurm-names")
def slurm_names(
    *,
    folder: Annotated[
        str | None, typer.Option("--dir", metavar="FOLDER", help="Where they go [where dovetail itself is].")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove them again.")] = False,
) -> None:
    """Install sbatch, squeue, scancel and sinfo as further names of our commands.

    They are gbatch, gqueue, gcancel and ginfo, and take Slurm's options. No other program of these names is
    replaced or removed.
    """
    from dovetail_cli.slurm import names

    print("\n".join(names.remove(folder) if remove else names.install(folder)))
