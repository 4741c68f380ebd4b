"""The demo's jobs. Pure except for reading the table, which is in this folder.

`mix.csv` counts how many of the 8,152 pods of Alibaba's cluster-trace-gpu-v2023 (openb_pod_list_default.csv; Weng et
al., ATC'23) asked for the same: its 20 most frequent classes, and the 4 most frequent of those with several GPUs.
"""

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.gpu.request import GPURequest
from dovetail.names import UNUSED_IMAGE
from dovetail_cli.submit import manifest
from dovetail_cli.ui import job_names

# The requests repeat from run to run. The names differ, so that a run does not collide with earlier ones.
_SEED: Final = 7
_SHORTEST_SECONDS: Final = 4
_LONGEST_SECONDS: Final = 10
# The last ones stay, so that there is something to look at afterwards.
_STAYING: Final = 4
_STAY_SECONDS: Final = 1800
# More than any node has: the queue says so at once and by how much.
_TOO_LARGE: Final = GPURequest(count=16, models=("V100",))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClass:
    """Pods of the trace that asked for the same, and how many they were."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    pods: int

    @property
    def request(self) -> GPURequest | None:
        """What they asked of GPUs; None for nothing."""
        return GPURequest(count=self.gpus, share_milli=self.gpu_milli) if self.gpus else None


def classes() -> list[PodClass]:
    """The table."""
    text = resources.files("dovetail_cli.demo").joinpath("mix.csv").read_text(encoding="utf-8")
    return [
        PodClass(
            cpu_milli=int(row["cpu_milli"]),
            memory_mib=int(row["memory_mib"]),
            gpus=int(row["num_gpu"]),
            gpu_milli=int(row["gpu_milli"]),
            pods=int(row["pods"]),
        )
        for row in csv.DictReader(text.splitlines())
    ]


def apportion(weights: Sequence[int], *, seats: int) -> list[int]:
    """`seats` divided by the weights, at least one each, by Hamilton's method.

    The largest remainders round up.
    """
    spare = max(0, seats - len(weights))
    exact = [weight * spare / sum(weights) for weight in weights]
    given = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda at: given[at] - exact[at])
    for at in by_remainder[: spare - sum(given)]:
        given[at] += 1
    return [1 + share for share in given]


def jobs(*, count: int, namespace: str, names_rng: random.Random | None = None) -> list[GPUJob]:
    """`count` jobs of the table's classes in a mixed order, and one that can never fit.

    Each class has its share by frequency.
    """
    rng = random.Random(_SEED)  # noqa: S311 - a repeatable order, no secret
    names_rng = names_rng or random.Random()  # noqa: S311
    table = classes()
    chosen = [
        one for one, times in zip(table, apportion([one.pods for one in table], seats=count), strict=True)
        for _ in range(times)
    ]  # fmt: skip
    rng.shuffle(chosen)
    called = _names(len(chosen) + 1, rng=names_rng)
    lasting = _lasting(chosen)
    made = []
    for at, one in enumerate(chosen):
        seconds = _STAY_SECONDS if at in lasting else rng.randint(_SHORTEST_SECONDS, _LONGEST_SECONDS)
        made.append(manifest.build(_submission(one, name=called[at], seconds=seconds), namespace=namespace))
    too_large = replace(_submission(chosen[0], name=called[-1], seconds=_SHORTEST_SECONDS), request=_TOO_LARGE)
    return [*made, manifest.build(too_large, namespace=namespace)]


def _lasting(chosen: Sequence[PodClass]) -> set[int]:
    """Positions of the last jobs with one GPU or a part of one."""
    small = [at for at, one in enumerate(chosen) if one.gpus == 1]
    return set(small[-_STAYING:])


def _names(count: int, *, rng: random.Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[job_names.random_name(rng)] = None
    return list(found)


def _submission(one: PodClass, *, name: str, seconds: int) -> manifest.Submission:
    return manifest.Submission(
        name=name,
        command=["sleep", str(seconds)],
        request=one.request,
        image=UNUSED_IMAGE,
        annotations={names.RUN_SECONDS: str(seconds)},
        host_resources={"cpu": f"{one.cpu_milli}m", "memory": f"{one.memory_mib}Mi"},
    )
