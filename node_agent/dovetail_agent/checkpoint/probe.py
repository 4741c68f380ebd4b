"""Tests on a process of our own whether the driver can move a process to the host and back.

No tenant is moved before the test has passed. The child (`python -m dovetail_agent.checkpoint.probe MIB`) allocates a
little device memory, writes "ready", and ends when its input does. It is killed only if it hangs: with one driver,
killing a restored process is reported to hang the host.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from dovetail_agent.checkpoint.calls import Calls, CheckpointFailed, ProcessState
from dovetail_agent.devices.cuda import Context, CudaError, Driver
from dovetail_agent.mps.devices import DevicesUnreadable, MpsDevices
from dovetail_agent.mps.probe import Verdict

_TAKES_MIB: Final = 64
# A CUDA context takes some hundred MiB more.
_NEEDS_MIB: Final = 1024
_LOCK_MILLISECONDS: Final = 5000
_SECONDS: Final = 30.0
_COMMAND: Final = (sys.executable, "-m", "dovetail_agent.checkpoint.probe", str(_TAKES_MIB))


def probed(
    calls: Calls,
    *,
    cards: MpsDevices,
    variables: Mapping[str, str],
    command: Sequence[str] = _COMMAND,
    seconds: float = _SECONDS,
) -> Verdict:
    """Run the test and return the verdict. Blocks for as long as the driver takes."""
    try:
        free = {uuid: card.free_mib for uuid, card in cards.list_devices().items() if not card.exclusive}
    except DevicesUnreadable as error:
        return Verdict(reason="CardsUnreadable", message=str(error))
    uuid = max(free, key=lambda each: (free[each], each), default="")
    if not uuid or free[uuid] < _NEEDS_MIB:
        return Verdict(reason="NotTried", message=f"no card has {_NEEDS_MIB} MiB free to try it on")
    child = subprocess.Popen(
        command,
        env={**variables, "CUDA_VISIBLE_DEVICES": uuid},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        return _tried(calls, child=child)
    finally:
        _ended(child, seconds=seconds)


def _tried(calls: Calls, *, child: subprocess.Popen[str]) -> Verdict:
    assert child.stdout is not None, "it is a pipe"
    said = child.stdout.readline().strip()
    if said != "ready":
        return Verdict(reason="ProbeFailed", message=f"a process of ours could not use a card: {said or 'it ended'}")
    steps: tuple[tuple[str, Callable[[int], None], ProcessState], ...] = (
        ("lock", lambda pid: calls.lock(pid, timeout_ms=_LOCK_MILLISECONDS), ProcessState.LOCKED),
        ("checkpoint", calls.checkpoint, ProcessState.CHECKPOINTED),
        ("restore", calls.restore, ProcessState.LOCKED),
        ("unlock", calls.unlock, ProcessState.RUNNING),
    )
    for name, call, after in steps:
        try:
            call(child.pid)
            state = calls.state(child.pid)
        except CheckpointFailed as error:
            return Verdict(reason="ProbeFailed", message=f"a process of ours could not be moved: {error}")
        if state is not after:
            message = f"after {name} a process of ours was {state.name}, and not {after.name}"
            return Verdict(reason="ProbeFailed", message=message)
    return Verdict(live=True, reason="Probed", message="a process of ours was moved to the host and back")


def _ended(child: subprocess.Popen[str], *, seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        child.communicate(timeout=seconds)
        return
    child.kill()
    child.communicate()


def main(arguments: Sequence[str]) -> None:
    """Run the child: allocate memory, report, and wait for the end of the input."""
    try:
        driver = Driver()
        driver.init()
        context = Context(driver)
        context.allocate(mib=int(arguments[0]))
    except CudaError as error:
        sys.stdout.write(f"{error}\n")
        return
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
