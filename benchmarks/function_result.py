"""From `client.submit(function)` to the value that `result()` returns, on the queue of this machine, and its parts.

Everything is real, and the function does nothing: it returns when its process started and when it was called. A sandbox
of its own with this machine as its node is started, and ended. One call at a time; the first is not counted.

    python benchmarks/function_result.py [--rounds 20] [--json FILE]
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import queue_plane
from counts import count

import local_node
from dovetail.sdk import Client

TARGET_SECONDS: Final = 1.5


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=count, default=20, help="calls (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/function_result.json"), help="where it is written too")
    args = options.parse_args()
    with local_node.sandbox() as (made, _):
        os.environ["KUBECONFIG"] = str(made.kubeconfig)
        with Client() as client:
            calls = [one(client) for _ in range(args.rounds + 1)][1:]
    parts = {name: summary([each[name] for each in calls]) for name in calls[0]}
    found = {"rounds": args.rounds, "load": os.getloadavg()[0], "target_seconds": TARGET_SECONDS, "seconds": parts}
    queue_plane.report(found, path=args.json)


def times() -> tuple[float, float]:
    """When this process was started, and when the function was called, by the clock."""
    now = time.time()
    stat = Path("/proc/self/stat").read_text(encoding="ascii")
    ticks = int(stat.rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return now - age, now


def one(client: Client) -> Mapping[str, float]:
    """One call: the whole, how long `submit` took, and the parts that follow one another."""
    begun = time.time()
    job = client.submit(times, gpu=0)
    submitted = time.time()
    started, called = job.result()
    ended = time.time()
    return {
        "all": ended - begun,
        "submit returns": submitted - begun,
        "until its process starts": started - begun,
        "until the function is called": called - started,
        "until its value is here": ended - called,
    }


def summary(values: Sequence[float]) -> Mapping[str, float]:
    """Median and largest."""
    return {"median": round(statistics.median(values), 3), "max": round(max(values), 3)}


if __name__ == "__main__":
    main()
