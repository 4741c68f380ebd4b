"""`gbatch`: submit a job."""

from typing import Annotated

import typer

from dovetail_cli.options import DEFAULT_IMAGE, Context, Kubeconfig, Namespace, Output
from dovetail_cli.scriptlines import SCRIPT, WithScriptLines

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


# Options end where the job's own command begins.
@app.command(
    cls=WithScriptLines, context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}
)
def gbatch(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="SCRIPT|COMMAND...|-", help="A script file, a command, or - for stdin.")
    ],
    *,
    gpus: Annotated[
        str | None,
        typer.Option(
            "-g", "--gpus", "--gres", metavar="REQUEST", help="GPUs for each worker: 2, 0.5, 2(V100), 8G,0.5."
        ),
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option("--gpu-memory", metavar="M", help="Memory on each shared GPU, such as 8G.")
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Take turns on the GPUs with others.")] = False,
    memory: Annotated[
        str | None, typer.Option("-m", "--memory", metavar="M", help="Host memory of each worker, such as 16G.")
    ] = None,
    cpus: Annotated[
        str | None, typer.Option("--cpus", metavar="N", help="CPUs of each worker, such as 4 or 0.5.")
    ] = None,
    priority: Annotated[int, typer.Option("-p", "--priority", metavar="0-255", help="Higher goes first.")] = 10,
    depends_on: Annotated[
        str | None,
        typer.Option(
            "-d", "--depends-on", metavar="JOB", help="Start after this job has succeeded; @ is your last one."
        ),
    ] = None,
    depends_on_all: Annotated[
        str | None, typer.Option("--depends-on-all", metavar="JOBS", help="Start after all of these, such as 3,5.")
    ] = None,
    depends_on_any: Annotated[
        str | None, typer.Option("--depends-on-any", metavar="JOBS", help="Start after any one of these.")
    ] = None,
    no_auto_cancel: Annotated[
        bool, typer.Option("--no-auto-cancel", help="Wait, and do not cancel the job, when such a job fails.")
    ] = False,
    begin: Annotated[
        str | None,
        typer.Option("--begin", metavar="T", help="Not before: HH:MM, 2026-01-31T18:00 or now+10m."),
    ] = None,
    limit: Annotated[
        str | None, typer.Option("-t", "--time", metavar="T", help="Time limit: HH:MM:SS, MM:SS or minutes.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("-n", "-J", "--name", "--job-name", metavar="NAME", help="Name [two words and a number]."),
    ] = None,
    max_retries: Annotated[
        int, typer.Option("--max-retries", metavar="N", help="How often a worker that failed is tried again.")
    ] = 0,
    array: Annotated[
        str | None,
        typer.Option("--array", metavar="A-B[:S][%N]", help="The same for each index; N tasks at a time."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="K=V,…", help="A task for each value: V1,V2 or START:STOP[:STEP]; repeatable."),
    ] = None,
    param_file: Annotated[
        str | None, typer.Option("--param-file", metavar="CSV", help="A task for each line; the first one has names.")
    ] = None,
    name_template: Annotated[
        str | None,
        typer.Option("--name-template", metavar="TEXT", help="Name of a sweep's tasks, such as lr{lr}-{index}."),
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option("--max-concurrent", metavar="N", help="At most N tasks of a sweep at a time.")
    ] = None,
    workers: Annotated[int, typer.Option("-N", "--nodes", metavar="N", help="Number of workers.")] = 1,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", envvar="DOVETAIL_IMAGE", help="Container image.")
    ] = DEFAULT_IMAGE,
    conda_env: Annotated[
        str | None, typer.Option("-c", "--conda-env", metavar="ENV", help="Run it in this conda environment.")
    ] = None,
    workdir: Annotated[
        str | None, typer.Option("--workdir", metavar="DIR", help="Working directory in the container.")
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", metavar="POLICY", help="Spread, Pack or Balanced.")] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="NAME", help="Only nodes of this pool (label dovetail.dev/pool).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the job and say where and when it would start; submit nothing.")
    ] = False,
    form: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Submit a job and print its number. Options come before the script or command.

    A script's text travels in the pod; its #! line says what runs it. Options may stand in it in # GFLOW lines, and
    Slurm's in #SBATCH lines; the command line wins.
    """
    from dovetail_cli import arraying, depending, manifest, naming, output, submit, times

    output.check_format(form, allowed=("table", "json", "yaml"))
    many = arraying.read(
        array=array,
        params=param or (),
        param_file=param_file,
        name_template=name_template,
        max_concurrent=max_concurrent,
    )
    submission = manifest.Submission(
        array=many.array,
        sweep=many.sweep,
        name=naming.random_name() if name is None else naming.check_name(name),
        command=manifest.in_conda(submit.command_of(words, script=ctx.meta.get(SCRIPT)), env=conda_env),
        request=manifest.request_of(gpus, gpu_memory=gpu_memory, shared=shared),
        shared=shared,
        host_resources=manifest.host_resources(cpus=cpus, memory=memory),
        priority=manifest.check_priority(priority),
        limit_seconds=None if limit is None else times.limit_seconds(limit),
        max_retries=manifest.check_retries(max_retries),
        workers=manifest.check_workers(workers),
        image=manifest.check_image(image),
        workdir=workdir,
        policy=manifest.parse_policy(policy),
        pool=None if pool is None else manifest.check_pool(pool),
        begin_time=None if begin is None else times.begin_time(begin, now=times.utc_now().astimezone()),
        wait_on_failure=no_auto_cancel,
    )
    after = depending.read(depends_on, all_of=depends_on_all, any_of=depends_on_any)
    submit.submit(
        submission, after=after, dry_run=dry_run, form=form, kubeconfig=kubeconfig, context=context, namespace=namespace
    )
