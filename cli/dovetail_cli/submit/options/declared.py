"""The options of gbatch alone, as typer reads them. Declarations only."""

from typing import Annotated

import typer

Words = Annotated[
    list[str] | None, typer.Argument(metavar="SCRIPT|COMMAND", help="A script file, a command, or - for stdin.")
]
Interactive = Annotated[
    bool, typer.Option("--interactive", help="A terminal in the job: a shell, or the command. It ends with it.")
]
Wait = Annotated[
    bool, typer.Option("-W", "--wait", help="Wait until the job has ended; the exit code is the job's own.")
]
GPUs = Annotated[
    str | None,
    typer.Option("-g", "--gpus", "--gres", metavar="REQUEST", help="GPUs for each worker: 2, 0.5, 2(V100), 8G,0.5."),
]
GPUMemory = Annotated[
    str | None,
    typer.Option(
        "--gpu-memory", metavar="M", help="Memory on each shared GPU, such as 8G; of whole ones the smallest size."
    ),
]
Shared = Annotated[bool, typer.Option("--shared", help="Take turns on the GPUs with others.")]
SharingMode = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="Exclusive, Fractional or TimeShared [as the request].")
]
MemoryStrategy = Annotated[
    str | None,
    typer.Option(
        "--memory-strategy",
        metavar="STRATEGY",
        help="Part of a shared GPU's memory that is promised: Conservative, Aggressive, Dynamic or a fraction.",
    ),
]
CPUFallback = Annotated[
    bool | None,
    typer.Option(
        "--cpu-fallback/--no-cpu-fallback",
        help="Run on the CPU if no GPU of the cluster could ever serve the job [as the namespace's].",
    ),
]
CPUFallbackAfter = Annotated[
    str | None,
    typer.Option(
        "--cpu-fallback-after", metavar="SPAN", help="Run on the CPU also after this wait for busy GPUs, such as 30m."
    ),
]
Memory = Annotated[
    str | None, typer.Option("-m", "--memory", metavar="M", help="Host memory of each worker, such as 16G.")
]
CPUs = Annotated[str | None, typer.Option("--cpus", metavar="N", help="CPUs of each worker, such as 4 or 0.5.")]
Priority = Annotated[int, typer.Option("-p", "--priority", metavar="0-255", help="Higher goes first.")]
DependsOn = Annotated[
    list[str] | None,
    typer.Option("-d", "--depends-on", metavar="JOB", help="Start after this job has succeeded; @ is your last one."),
]
DependsOnAll = Annotated[
    str | None, typer.Option("--depends-on-all", metavar="JOBS", help="Start after all of these, such as 3,5.")
]
DependsOnAny = Annotated[
    str | None, typer.Option("--depends-on-any", metavar="JOBS", help="Start after any one of these.")
]
NoAutoCancel = Annotated[
    bool, typer.Option("--no-auto-cancel", help="Wait, and do not cancel the job, when such a job fails.")
]
Begin = Annotated[
    str | None,
    typer.Option("--begin", metavar="T", help="Not before: HH:MM, 2026-01-31T18:00 or now+10m."),
]
Limit = Annotated[
    str | None, typer.Option("-t", "--time", metavar="T", help="Time limit: HH:MM:SS, minutes, or such as 2h.")
]
Name = Annotated[
    str | None,
    typer.Option("-n", "-J", "--name", "--job-name", metavar="NAME", help="Name [two words and a number]."),
]
Project = Annotated[
    str | None, typer.Option("-P", "--project", metavar="NAME", help="What the job is counted for, such as vision.")
]
MaxRetries = Annotated[
    int, typer.Option("--max-retries", metavar="N", help="How often a worker that failed is tried again.")
]
Array = Annotated[
    str | None,
    typer.Option("--array", metavar="A-B[:S][%N]", help="The same for each index; N tasks at a time."),
]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="K=V,…", help="A task for each value: V1,V2 or START:STOP[:STEP]; repeatable."),
]
ParamFile = Annotated[
    str | None, typer.Option("--param-file", metavar="CSV", help="A task for each line; the first one has names.")
]
NameTemplate = Annotated[
    str | None,
    typer.Option("--name-template", metavar="TEXT", help="Name of a sweep's tasks, such as lr{lr}-{index}."),
]
MaxConcurrent = Annotated[
    int | None,
    typer.Option("--max-concurrent", metavar="N", help="At most N tasks, or jobs of the --group, at a time."),
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Jobs that --max-concurrent counts together.")
]
Workers = Annotated[int, typer.Option("-N", "--nodes", metavar="N", help="Number of workers.")]
MinWorkers = Annotated[
    int | None, typer.Option("--min-workers", metavar="N", help="Start with fewer workers if not all fit, at least N.")
]
Topology = Annotated[
    str | None,
    typer.Option(
        "--topology", metavar="RULES", help="Keep the workers together: required=rack, preferred=rack, group=4:nvlink."
    ),
]
NotifyEmail = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-email",
        metavar="ADDRESS",
        help="Address that receives the job's notifications, such as you@example.org.",
    ),
]
NotifyOn = Annotated[
    list[str] | None,
    typer.Option("--notify-on", metavar="EVENTS", help="Events to notify of: Started,Failed,… [each way to end]."),
]
Image = Annotated[
    str | None,
    typer.Option("--image", metavar="IMAGE", envvar="DOVETAIL_IMAGE", help="Container image [that of the profile]."),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Your profile with defaults, see `dovetail config` [current one]."),
]
CondaEnv = Annotated[
    str | None, typer.Option("-c", "--conda-env", metavar="ENV", help="Run it in this conda environment.")
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A text file that goes along, handed to the command as --config."),
]
Workdir = Annotated[str | None, typer.Option("--workdir", metavar="DIR", help="Working directory in the container.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable of the job; repeatable.")
]
Volume = Annotated[
    list[str] | None,
    typer.Option("--volume", metavar="PVC:/PATH[:ro]", help="A PersistentVolumeClaim at this path; repeatable."),
]
NodeSelector = Annotated[
    list[str] | None,
    typer.Option("--node-selector", metavar="LABEL=VALUE", help="Only nodes with this label; repeatable."),
]
Upload = Annotated[
    bool | None,
    typer.Option(
        "--upload/--no-upload", help="Whether this directory goes along to a cluster [as the profile says, else yes]."
    ),
]
Export = Annotated[
    str | None,
    typer.Option("--export", metavar="NAMES", help="Variables that a job on this machine gets: ALL, NONE, A,B=1."),
]
OutputFile = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="File for the job's output, %j is its number; or json, yaml."),
]
ErrorFile = Annotated[
    str | None, typer.Option("-e", "--error", metavar="FILE", help="File for the job's errors [that of its output].")
]
WaitForCapacity = Annotated[
    bool,
    typer.Option("--wait-for-capacity", help="Queue the job although no node of this cluster could ever run it."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the job and say where and when it would start; submit nothing.")
]
