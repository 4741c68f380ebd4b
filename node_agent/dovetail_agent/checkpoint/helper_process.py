"""Runs the checkpoint calls in a process of their own.

A hang or a crash in the driver then ends only that process.
The helper (`python -m dovetail_agent.checkpoint.helper_process`) reads one call from each line and answers with one
line of JSON. CUDA also needs a process that keeps the driver initialised while another process is restored. The helper
is that process, so the agent stays small.
"""

import json
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from dovetail.decoding import decode
from dovetail_agent.checkpoint.calls import CheckpointFailed, LibraryCalls, ProcessState
from dovetail_agent.devices.cuda import CudaError, Driver

# Memory moves out at about 2 GB/s and returns faster: this covers the largest device with a margin.
_LONGEST_SECONDS: Final = 120.0
_STATE_SECONDS: Final = 10.0
_COMMAND: Final = (sys.executable, "-m", "dovetail_agent.checkpoint.helper_process")


class HelperCalls:
    """Implements `Calls` through the helper process, which starts on demand. One call at a time."""

    def __init__(
        self,
        *,
        variables: Mapping[str, str],
        longest_seconds: float = _LONGEST_SECONDS,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._variables = dict(variables)
        self._longest_seconds = longest_seconds
        self._command = list(command)
        self._child: subprocess.Popen[str] | None = None
        self._hand = threading.Lock()

    def state(self, pid: int) -> ProcessState:
        """Implement `Calls.state`."""
        return ProcessState(self._ask("state", pid, seconds=min(_STATE_SECONDS, self._longest_seconds)))

    def lock(self, pid: int, *, timeout_ms: int) -> None:
        """Implement `Calls.lock`."""
        self._ask("lock", pid, timeout_ms, seconds=self._longest_seconds)

    def checkpoint(self, pid: int) -> None:
        """Implement `Calls.checkpoint`."""
        self._ask("checkpoint", pid, seconds=self._longest_seconds)

    def restore(self, pid: int) -> None:
        """Implement `Calls.restore`."""
        self._ask("restore", pid, seconds=self._longest_seconds)

    def unlock(self, pid: int) -> None:
        """Implement `Calls.unlock`."""
        self._ask("unlock", pid, seconds=self._longest_seconds)

    def stop(self) -> None:
        """End the helper. The next call starts it again."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _ask(self, *words: object, seconds: float) -> int:
        line = " ".join(map(str, words))
        with self._hand:
            answer = _exchange(self._running(), line=line, seconds=seconds)
            if answer is None:
                self.stop()
                raise CheckpointFailed(f"{line}: the driver did not come back in {seconds:g} s, or crashed")
        if "problem" in answer:
            raise CheckpointFailed(str(answer["problem"]), code=answer.get("code"))
        return int(answer.get("state", 0))

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self.stop()
            self._child = subprocess.Popen(
                self._command, env=self._variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._child


def main(source: IO[str], *, sink: IO[str]) -> None:
    """Answer one call per line until the source ends."""
    calls: LibraryCalls | None = None
    for line in source:
        verb, *numbers = line.split()
        try:
            calls = calls or LibraryCalls(Driver())
            answer = _made(calls, verb=verb, numbers=[int(number) for number in numbers])
        except CheckpointFailed as error:
            answer = {"problem": str(error), "code": error.code}
        except CudaError as error:
            answer = {"problem": str(error)}
        sink.write(json.dumps(answer) + "\n")
        sink.flush()


def _made(calls: LibraryCalls, *, verb: str, numbers: Sequence[int]) -> dict[str, Any]:
    if verb == "state":
        return {"state": int(calls.state(numbers[0]))}
    if verb == "lock":
        calls.lock(numbers[0], timeout_ms=numbers[1])
    else:
        {"checkpoint": calls.checkpoint, "restore": calls.restore, "unlock": calls.unlock}[verb](numbers[0])
    return {}


def _exchange(child: subprocess.Popen[str], *, line: str, seconds: float) -> dict[str, Any] | None:
    """Return the helper's answer, or None if it times out or has ended."""
    assert child.stdin is not None and child.stdout is not None, "both are pipes"  # noqa: PT018 - one thought
    try:
        child.stdin.write(f"{line}\n")
        child.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(child.stdout, selectors.EVENT_READ)
            if not waiting.select(seconds):
                return None
        answer = decode(child.stdout.readline(), as_type=Any)
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


if __name__ == "__main__":
    main(sys.stdin, sink=sys.stdout)
