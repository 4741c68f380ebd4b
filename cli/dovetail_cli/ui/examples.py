"""The examples at the end of each command's help, by the words that name the command."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "gbatch": (
        "gbatch --gpus 2 python train.py",
        "gbatch -g 0.5 --gpu-memory 8G -t 2:00:00 -n infer --env LR=0.1 'python serve.py | tee log'",
        "gbatch -g 1 --gpu-memory 80G --volume data:/data:ro --node-selector disk=nvme python train.py",
        "gbatch --param lr=0.1,0.01 --param seed=1:5 --max-concurrent 4 'python train.py --lr {lr} --seed {seed}'",
        "gbatch -N 4 -g 8 --topology required=rack --restart Worker torchrun train.py",
        "gbatch -g 1 --interactive",
        "gbatch -d @ --group nightly --max-concurrent 2 evaluate.sh",
    ),
    "whoami": ("dovetail whoami", "dovetail whoami -o json"),
    "mcp": ("dovetail mcp", "dovetail mcp --read-only"),
    "gqueue": (
        "gqueue -w",
        "gqueue -u all -s PD -r -priority",
        "gqueue -a -j 1-5 -f JOBID,NAME,ST,TIME,GPUS",
        "gqueue --since 1d -o json",
    ),
    "ginfo": ("ginfo", "ginfo -v", "ginfo --by-job", "ginfo -o csv"),
    "gcancel": ("gcancel 7", "gcancel --dry-run 1-5 train-resnet"),
    "gjob show": ("gjob show 7", "gjob show train-resnet -o json"),
    "gjob events": ("gjob events 7", "gjob events train-resnet -o json"),
    "gjob log": ("gjob log 7", "gjob log -f train-resnet", "gjob log -f 7 --worker 1 --tail 20"),
    "gjob wait": ("gjob wait 7", "gjob wait 1-5 --timeout 600"),
    "gjob hold": ("gjob hold 7", "gjob hold 1-5 train-resnet"),
    "gjob release": ("gjob release 7", "gjob release 1-5 --at 18:00"),
    "gjob update": ("gjob update 7 -p 200 -t 90:00", "gjob update sweep --max-concurrent 4"),
    "gjob resize": ("gjob resize 7 --dry-run", "gjob resize 7"),
    "gjob renew": ("gjob renew notebook", "gjob renew 7 --for 2h"),
    "gjob redo": ("gjob redo 7",),
    "gjob fetch": ("gjob fetch 7", "gjob fetch 7 results --to here"),
    "gjob attach": ("gjob attach 7", "gjob attach --worker 1 7 nvidia-smi", "gjob attach --port 8888 notebook"),
    "gstats": ("gstats", "gstats --since 7d --by user", "gstats -P vision -o json"),
    "top": ("dovetail top", "dovetail top --interval 5", "dovetail top -o csv"),
    "quota": ("dovetail quota", "dovetail quota vision -o json"),
    "quota plan": ("dovetail quota plan departments.yaml", "dovetail quota plan departments.yaml -o json"),
    "quota set": (
        "dovetail quota set research-vision --parent research --namespaces vision --guaranteed 8",
        "dovetail quota set vision --namespaces vision --gpus 8 --running-jobs 20",
        "dovetail quota set vision --gpus none",
    ),
    "quota delete": ("dovetail quota delete vision",),
    "limits": ("dovetail limits", "dovetail limits policy training_per_device -o json"),
    "limits set": (
        "dovetail limits set policy=Pack namespace_policies.vision=Spread",
        "dovetail limits set preemption.priority_gap=10",
        "dovetail limits set --device node-1:0 training_per_device=2",
    ),
    "limits unset": ("dovetail limits unset policy", "dovetail limits unset --device node-1:0 training_per_device"),
    "explain pod": ("dovetail explain pod train-resnet-0", "dovetail explain pod notebook -n vision --all"),
    "explain job": ("dovetail explain 7", "dovetail explain job train-resnet -o json"),
    "explain request": (
        "dovetail explain request '2(V100)'",
        "dovetail explain request 0.5 --mode Fractional --memory-host 16Gi",
    ),
    "move apply": ("dovetail move apply 7", "dovetail move apply train-resnet --yes"),
    "move plan": ("dovetail move plan 7", "dovetail move plan 7 9 train-resnet --namespace vision -o json"),
    "console": ("dovetail console", "dovetail console --gateway https://dovetail.example.com --no-browser"),
    "cordon": ("dovetail cordon node-1:2", "dovetail cordon node-1:0-3 node-2:all"),
    "uncordon": ("dovetail uncordon node-1:2", "dovetail uncordon --mended node-1:2"),
    "observe": ("dovetail observe", "dovetail observe --context prod --all", "dovetail observe -o json"),
    "observe report": ("dovetail observe report", "dovetail observe report -o json"),
    "adopt": ("dovetail adopt node-1", "dovetail adopt node-1 -o json"),
    "doctor": ("dovetail doctor", "dovetail doctor node-1", "dovetail doctor --host"),
    "audit": ("dovetail audit", "dovetail audit -o json"),
    "snapshot": ("dovetail snapshot -f cluster.json", "dovetail snapshot --anonymous -o yaml"),
    "simulate": (
        "dovetail simulate --snapshot cluster.json --policy pack,spread",
        "dovetail simulate --nodes nodes.csv --pods pods.csv --policy ph,fgd --plot out.png",
    ),
    "replay": ("dovetail replay --pods pods.csv --nodes nodes.csv --limit-pods 300 --speedup 10000",),
    "demo": ("dovetail demo", "dovetail demo --jobs 20", "dovetail demo --down"),
    "config show": ("dovetail config show", "dovetail config show --profile vision -o json"),
    "config set": (
        "dovetail config set image python:3.12",
        "dovetail config set env.HF_HOME /data/hf --profile vision",
        "dovetail config set volumes data:/data",
    ),
    "config unset": ("dovetail config unset env.HF_HOME",),
    "config use": ("dovetail config use vision",),
    "config list": ("dovetail config list",),
    "config slurm-names": (
        "dovetail config slurm-names",
        "dovetail config slurm-names --dir ~/bin",
        "dovetail config slurm-names --dir ~/bin --remove",
    ),
    "config check": (
        "dovetail config check gpu_config.yaml",
        "dovetail config check -o json values.yaml",
    ),
    "migrate v1": ("dovetail migrate v1",),
    "migrate v2": (
        "dovetail migrate v2 --image IMAGE --train 'python train.py --data {train_path}'",
        "dovetail migrate v2 --image IMAGE --infer 'python infer.py' --workdir /data --volume data:/data",
    ),
    "uninstall": ("dovetail uninstall --dry-run", "dovetail uninstall --keep-logs"),
    "completion": ("source <(dovetail completion bash)", "dovetail completion fish | source"),
    "gflowd up": (
        "gflowd up",
        "gflowd up --train 'python train.py --data {train_path} --out {save_path}' --workdir ~/service",
        "gflowd up --simulated",
    ),
    "gflowd status": ("gflowd status",),
    "gflowd down": ("gflowd down",),
    "gflowd service install": ("gflowd service install", "gflowd service install --print"),
    "gflowd service remove": ("gflowd service remove",),
    "sandbox up": (
        "dovetail sandbox up",
        "dovetail sandbox up --name big --nodes nodes.yaml --set operator.replicas=1",
        "dovetail sandbox up --local",
    ),
    "sandbox down": ("dovetail sandbox down", "dovetail sandbox down --all"),
    "sandbox status": ("dovetail sandbox status -o json",),
    "sandbox fetch": ("dovetail sandbox fetch",),
    "sandbox logs": ("dovetail sandbox logs -f operator",),
    "sandbox restart": ("dovetail sandbox restart extender",),
    "sandbox console": ("dovetail sandbox console",),
    "sandbox token": ("dovetail sandbox token", "dovetail sandbox token --namespace vision"),
}


def add(command: Any, *, name: str) -> None:
    """Add the examples to the help of typer's command of that name, and of its subcommands."""
    if name in EXAMPLES:
        # The first character keeps the lines as they are; without it, typer would fill them like a paragraph.
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {each}" for each in EXAMPLES[name])])
    for word, each in getattr(command, "commands", {}).items():
        add(each, name=f"{name} {word}")
