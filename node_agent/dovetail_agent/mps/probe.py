"""Tests with clients of our own whether MPS enforces a client's memory limit.

MPS counts as live only after the test. A client without a limit allocates some memory of a device: this must succeed. A
client whose limit is half of that amount allocates a little, which must succeed, and then the full amount, which must
be refused. The first client shows that the limit refuses the second, and not a full device. Each client is a process
(`python -m dovetail_agent.mps.probe SMALL LARGE`), because the environment defines a client and a client can hang.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.decoding import decode
from dovetail_agent.devices.cuda import OUT_OF_MEMORY, CallRefused, Context, CudaError, Driver

LARGEST_MIB: Final = 2048
SMALLEST_MIB: Final = 512
# Left free on the device during the probe, for contexts and other processes' allocations.
MARGIN_MIB: Final = 512
_SECONDS: Final = 30.0
_MEMORY_LIMIT: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether limits are live, with a reason in one word and a message."""

    live: bool = False
    reason: str
    message: str


def size_mib(*, free_mib: int, limit_mib: int | None) -> int | None:
    """Return how many MiB a probe may take of a device; None if too little for a clear result.

    `free_mib` is the device's free memory, `limit_mib` the daemon's limit for each client.
    """
    most = min(LARGEST_MIB, free_mib - MARGIN_MIB)
    if limit_mib is not None:
        most = min(most, limit_mib // 2)
    return most if most >= SMALLEST_MIB else None


def probed(
    uuid: str,
    *,
    size: int,
    variables: Mapping[str, str],
    seconds: float = _SECONDS,
    command: Sequence[str] = (sys.executable, "-m", "dovetail_agent.mps.probe"),
) -> Verdict:
    """Run both clients on one device and return the verdict. Blocks for at most twice `seconds`."""
    own = {**variables, "CUDA_VISIBLE_DEVICES": uuid}
    free = _client([*command, str(size // 8), str(size)], variables=own, seconds=seconds)
    if free != {"ok": True}:
        return _failed(f"a client without a limit could not take {size} MiB: {_said(free)}")
    limit = size // 2
    bound = _client(
        [*command, str(size // 8), str(size)], variables={**own, _MEMORY_LIMIT: f"0={limit}M"}, seconds=seconds
    )
    if bound == {"ok": True}:
        message = f"a client with a limit of {limit} MiB could take {size} MiB: limits are not enforced here"
        return Verdict(reason="NotRefused", message=message)
    if bound.get("mib") == size and bound.get("code") == OUT_OF_MEMORY:
        message = f"a client with a limit of {limit} MiB was refused {size} MiB"
        return Verdict(live=True, reason="Probed", message=message)
    return _failed(f"a client with a limit of {limit} MiB failed before it asked for more: {_said(bound)}")


def main(arguments: Sequence[str]) -> None:
    """Run one client: allocate the memory, and print the result as JSON."""
    taking = 0
    try:
        driver = Driver()
        driver.init()
        context = Context(driver)
        for taking in map(int, arguments):
            context.allocate(mib=taking)
    except CallRefused as error:
        answer: dict[str, Any] = {"ok": False, "problem": str(error), "code": error.code, "mib": taking}
    except CudaError as error:
        answer = {"ok": False, "problem": str(error)}
    else:
        answer = {"ok": True}
    sys.stdout.write(json.dumps(answer) + "\n")


def _client(command: Sequence[str], *, variables: Mapping[str, str], seconds: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command,
            env=dict(variables),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        answer = decode(done.stdout, as_type=Any)
    except subprocess.TimeoutExpired:
        return {"ok": False, "problem": f"it did not come back in {seconds:g} s"}
    except (OSError, ValueError) as error:
        return {"ok": False, "problem": str(error)}
    return answer if isinstance(answer, dict) else {"ok": False, "problem": "it said nothing"}


def _failed(message: str) -> Verdict:
    return Verdict(reason="ProbeFailed", message=message)


def _said(answer: Mapping[str, Any]) -> str:
    return str(answer.get("problem", "it said nothing"))


if __name__ == "__main__":
    main(sys.argv[1:])
