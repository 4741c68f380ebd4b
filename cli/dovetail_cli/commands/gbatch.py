"""`gbatch`: submit a job."""

import typer

from dovetail_cli.submit.options import declared as asked
from dovetail_cli.submit.options.of_spec import Fields, with_spec_options
from dovetail_cli.submit.script_directives import SCRIPT, WithScriptLines
from dovetail_cli.ui.options import DOCUMENTS, Context, Kubeconfig, Namespace

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


# Options end where the job's own command begins.
@app.command(
    cls=WithScriptLines,
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
)
@with_spec_options
def gbatch(
    ctx: typer.Context,
    words: asked.Words = None,
    *,
    interactive: asked.Interactive = False,
    wait: asked.Wait = False,
    gpus: asked.GPUs = None,
    gpu_memory: asked.GPUMemory = None,
    shared: asked.Shared = False,
    mode: asked.SharingMode = None,
    memory_strategy: asked.MemoryStrategy = None,
    cpu_fallback: asked.CPUFallback = None,
    cpu_fallback_after: asked.CPUFallbackAfter = None,
    memory: asked.Memory = None,
    cpus: asked.CPUs = None,
    priority: asked.Priority = 10,
    depends_on: asked.DependsOn = None,
    depends_on_all: asked.DependsOnAll = None,
    depends_on_any: asked.DependsOnAny = None,
    no_auto_cancel: asked.NoAutoCancel = False,
    begin: asked.Begin = None,
    limit: asked.Limit = None,
    name: asked.Name = None,
    project: asked.Project = None,
    max_retries: asked.MaxRetries = 0,
    array: asked.Array = None,
    param: asked.Param = None,
    param_file: asked.ParamFile = None,
    name_template: asked.NameTemplate = None,
    max_concurrent: asked.MaxConcurrent = None,
    group: asked.Group = None,
    workers: asked.Workers = 1,
    min_workers: asked.MinWorkers = None,
    topology: asked.Topology = None,
    notify_email: asked.NotifyEmail = None,
    notify_on: asked.NotifyOn = None,
    image: asked.Image = None,
    profile: asked.Profile = None,
    conda_env: asked.CondaEnv = None,
    config: asked.Config = None,
    workdir: asked.Workdir = None,
    upload: asked.Upload = None,
    env: asked.Env = None,
    volume: asked.Volume = None,
    node_selector: asked.NodeSelector = None,
    fields: Fields,
    export: asked.Export = None,
    output_file: asked.OutputFile = None,
    error_file: asked.ErrorFile = None,
    dry_run: asked.DryRun = False,
    wait_for_capacity: asked.WaitForCapacity = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Submit a job and print its number. Options come before the script or command.

    A script's text travels in the pod; its #! line says what runs it. Options may stand in it in # GFLOW lines, and
    Slurm's in #SBATCH lines; the command line wins.
    """
    from contextlib import ExitStack

    from dovetail.query.jobs.projects import check_project
    from dovetail_cli.submit import (
        arrays,
        config_file,
        dependencies,
        local,
        manifest,
        notify,
        on_cluster,
        pod_options,
        submit,
        terminal,
    )
    from dovetail_cli.ui import job_names, times

    form = output_file if output_file in DOCUMENTS else "table"
    many = arrays.read(
        array=array,
        params=param or (),
        param_file=param_file,
        name_template=name_template,
        max_concurrent=max_concurrent if group is None else None,
    )
    file = None if config is None else config_file.read(config)
    command = submit.command_of(
        words or terminal.words(interactive=interactive), script=ctx.meta.get(SCRIPT), file=file
    )
    arrays.check_placeholders((words or ()) if ctx.meta.get(SCRIPT) is None else (words or ())[1:], sweep=many.sweep)
    how = manifest.mode_of(mode, shared=shared)
    request = manifest.request_of(gpus, gpu_memory=gpu_memory, shared=shared, mode=how)
    about_gpus = {
        "--mode": mode,
        "--memory-strategy": memory_strategy,
        "--cpu-fallback": cpu_fallback,
        "--cpu-fallback-after": cpu_fallback_after,
    }
    manifest.check_about_gpus(about_gpus, request=request)
    submission = manifest.Submission(
        array=many.array,
        sweep=many.sweep,
        name=job_names.random_name() if name is None else job_names.check_name(name),
        command=manifest.in_conda(command, env=conda_env),
        request=request,
        mode=how,
        memory_strategy=manifest.parse_memory_strategy(memory_strategy),
        fallback=manifest.fallback_of(cpu_fallback, after=cpu_fallback_after),
        group=manifest.check_group(group),
        max_concurrent=None if group is None else manifest.check_max_concurrent(max_concurrent),
        host_resources=manifest.host_resources(cpus=cpus, memory=memory),
        priority=manifest.check_priority(priority),
        limit_seconds=None if limit is None else times.limit_seconds(limit),
        max_retries=manifest.check_retries(max_retries),
        workers=manifest.check_workers(workers),
        min_workers=manifest.check_min_workers(min_workers, workers=workers),
        topology=pod_options.topology(topology, workers=workers),
        env=pod_options.variables(env or ()),
        volumes=pod_options.volumes(volume or ()),
        node_selector=pod_options.node_labels(node_selector or ()),
        image="" if image is None else manifest.check_image(image),
        workdir=workdir,
        fields=fields,
        project=None if project is None else check_project(project, field="--project"),
        begin_time=None if begin is None else times.begin_time(begin, now=times.local_now()),
        wait_on_failure=no_auto_cancel,
        notify=notify.read(notify_email or (), events=notify_on or ()),
    )
    until_ended = None
    if wait:
        from dovetail_cli.jobs import wait as waiting

        until_ended = waiting.then
    after = dependencies.read(depends_on, all_of=depends_on_all, any_of=depends_on_any)
    with ExitStack() as stack:
        opened = None
        if interactive:
            from dovetail_cli.jobs import session

            opened = stack.enter_context(session.prepared(kubeconfig=kubeconfig, context=context))
        submit.submit(
            submission,
            after=after,
            file=file,
            local=local.Local(
                export=export, output=None if output_file in DOCUMENTS else output_file, error=error_file
            ),
            asked=on_cluster.Asked(
                profile=profile, interactive=interactive, upload=upload, kubeconfig=kubeconfig, context=context
            ),
            dry_run=dry_run,
            wait_for_capacity=wait_for_capacity,
            form=form,
            namespace=namespace,
            then=until_ended if opened is None else opened.then,
            through=None if opened is None else opened.through,
        )
