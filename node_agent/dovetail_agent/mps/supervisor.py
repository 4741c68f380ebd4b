"""Runs MPS on a node, one step at a time.

A step keeps the daemon alive, sets its limits to those of the allocations, proves the limits, and keeps other processes
off the devices that Fractional tenants share. It blocks for as long as the driver's programs take. Between steps, the
supervisor keeps only the daemon that it started, the probe's last verdict, and the last clients: they are the pods that
lose their work when a daemon or server ends.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.api.gpunodetenants import NodeTenant
from dovetail.logs import get_logger
from dovetail_agent.devices.process_memory import owner_of
from dovetail_agent.mps.client_folder import ClientFolder
from dovetail_agent.mps.control import Control, ControlError
from dovetail_agent.mps.daemon import Daemon
from dovetail_agent.mps.devices import DevicesUnreadable, MpsDevice, MpsDevices
from dovetail_agent.mps.leftovers import SharedMemory
from dovetail_agent.mps.limits import Limits, commands, limits_of, others_cards
from dovetail_agent.mps.probe import Verdict, size_mib
from dovetail_agent.mps.state_file import State
from dovetail_agent.processes.identity import PROC

log = get_logger(__name__)

# A daemon without an answer this long after its start hangs.
_SILENCE_SECONDS: Final = 30.0
# Delay before a failed probe is repeated: the devices may have been busy, and each probe creates contexts on one.
_RETRY_SECONDS: Final = 300.0
_STARTING: Final = Verdict(reason="Starting", message="the control daemon has not answered yet")

Probe = Callable[[str, int], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step's result: the state to write, and why pods' clients lost their server, by UID."""

    state: State
    lost: Mapping[str, str]


class Supervisor:
    """The supervisor's state between steps.

    `probe(uuid, size in MiB)` tests a device. `wall` is the time of day in seconds, `clock` is monotonic. `remember`
    writes a state for the next supervisor, before a device is made exclusive.
    """

    def __init__(
        self,
        *,
        daemon: Daemon,
        control: Control,
        cards: MpsDevices,
        probe: Probe,
        clock: Callable[[], float],
        wall: Callable[[], float],
        shared: SharedMemory,
        clients: ClientFolder,
        remember: Callable[[State], None],
        kept: Sequence[str] = (),
        proc: Path = PROC,
    ) -> None:
        self._daemon = daemon
        self._control = control
        self._cards = cards
        self._probe = probe
        self._clock = clock
        self._wall = wall
        self._proc = proc
        self._shared = shared
        self._folder = clients
        self._remember = remember
        self._swept = False
        self._kept = set(kept)
        self._verdict = _STARTING
        self._try_at = 0.0
        self._last_message: tuple[str, ...] = ()
        self._clients: dict[int, dict[int, str]] = {}
        self._crashes_total = 0

    def step(self, tenants: Sequence[NodeTenant]) -> Step:
        """Take one step."""
        lost: dict[str, str] = {}
        self._sweep(limits_of(tenants))
        if how := self._tend():
            lost = self._mourn(list(self._clients), how=f"MPS's control daemon is gone: {how}")
        elif self._daemon.pid is not None:
            lost = self._serve(tenants)
        self._close(limits_of(tenants))
        return Step(state=self._state(), lost=lost)

    def stop(self) -> None:
        """End the daemon.

        Compute modes stay: a client without a daemon must fail, not run without limits.
        """
        self._daemon.stop()

    def _sweep(self, limits: Limits) -> None:
        """Free what tenants left once the last Fractional tenant is gone. The daemon ends too.

        Its segments must be freed as well. No new tenant uses the folder yet: the volume driver mounts it only for pods
        among the tenants.
        """
        if limits.cards:
            self._swept = False
            return
        if self._swept:
            return
        self._swept = True
        if left := self._shared.left_over():
            if self._daemon.pid is not None:
                self._daemon.end(f"it has no clients, and earlier ones left {left} of shared memory")
                self._clients, self._last_message, self._try_at = {}, (), 0.0
                self._verdict = _STARTING
            self._shared.clear()

    def _tend(self) -> str:
        how = self._daemon.tend()
        if how:
            self._crashes_total += 1
            self._verdict = Verdict(reason="Crashed", message=f"there is no control daemon: {how}")
            self._last_message, self._try_at = (), 0.0
        return how

    def _serve(self, tenants: Sequence[NodeTenant]) -> dict[str, str]:
        try:
            lost = self._follow()
            self._folder.renew()  # once a daemon has answered: an earlier one may have left its socket
            self._limit(limits_of(tenants))
        except ControlError as error:
            return self._unanswered(str(error))
        if lost:
            self._crashes_total += 1
            self._try_at = 0.0
        self._prove(tenants)
        return lost

    def _unanswered(self, problem: str) -> dict[str, str]:
        if self._daemon.seconds_up < _SILENCE_SECONDS:
            return {}
        self._daemon.end(problem)
        self._crashes_total += 1
        self._verdict = Verdict(reason="NotAnswering", message=f"the control daemon does not answer: {problem}")
        self._last_message, self._try_at = (), 0.0
        return self._mourn(list(self._clients), how=f"MPS's control daemon hung and was ended: {problem}")

    def _follow(self) -> dict[str, str]:
        """Read which server has which clients. Return the pods of servers that have ended."""
        servers = self._control.servers()
        gone = [server for server in self._clients if server not in servers]
        lost = self._mourn(gone, how="its MPS server has ended")
        self._clients = {server: self._pods(self._control.clients(server)) for server in servers}
        return lost

    def _pods(self, pids: Sequence[int]) -> dict[int, str]:
        owners = {pid: owner_of(pid, proc=self._proc) for pid in pids}
        return {pid: owner.pod_uid if owner else "" for pid, owner in owners.items()}

    def _mourn(self, servers: Sequence[int], *, how: str) -> dict[str, str]:
        """Forget these servers and return the pods that they served."""
        pods = {pod for server in servers for pod in self._clients.pop(server).values() if pod}
        if servers:
            log.warning("MPS clients lost", problem=how, pods=sorted(pods))
        return dict.fromkeys(sorted(pods), how)

    def _limit(self, limits: Limits) -> None:
        said = tuple(commands(limits, servers=tuple(self._clients)))
        if said == self._last_message:
            return
        for command in said:
            if answer := self._control.ask(command).strip():
                log.debug("control daemon answered", command=command, answer=answer)
        self._last_message = said

    def _prove(self, tenants: Sequence[NodeTenant]) -> None:
        if self._clock() < self._try_at:
            return
        limits = limits_of(tenants).memory_mib
        try:
            chosen = _where(self._cards.list_devices(), limits=limits, others=others_cards(tenants))
        except DevicesUnreadable as error:
            self._verdict = Verdict(reason="CardsUnreadable", message=str(error))
            return
        if chosen is None:
            message = (
                "no card to try it on: each has a tenant of another mode, too little free memory, or is split by MIG"
            )
            self._verdict = Verdict(reason="NotTried", message=message)
            return
        self._verdict = self._probe(*chosen)
        self._try_at = float("inf") if self._verdict.live else self._clock() + _RETRY_SECONDS
        log.info("MPS probed", live=self._verdict.live, reason=self._verdict.reason, found=self._verdict.message)

    def _close(self, limits: Limits) -> None:
        """Keep other processes off the devices shared under limits, also while a daemon restarts."""
        if self._verdict.live:
            wanted = limits.cards
        elif self._verdict.reason in {"Crashed", "NotAnswering", "Starting", "NotTried"}:
            wanted = limits.cards & self._kept
        else:
            wanted = frozenset()
        try:
            self._set(wanted)
        except DevicesUnreadable as error:
            log.warning("a card's compute mode stays as it is", problem=str(error))

    def _set(self, wanted: frozenset[str]) -> None:
        now = self._cards.list_devices() if wanted or self._kept else {}
        for uuid in sorted(wanted & now.keys()):
            self._kept.add(uuid)
            if not now[uuid].exclusive:
                # Killed in between, the next supervisor must know whose the mode is, or it stays when tenants are gone.
                self._remember(self._state())
                self._cards.keep(uuid, exclusive=True)
        for uuid in sorted(self._kept - wanted):
            if uuid in now and now[uuid].exclusive:
                self._cards.keep(uuid, exclusive=False)
            self._kept.discard(uuid)

    def _state(self) -> State:
        clients = Counter(pod for served in self._clients.values() for pod in served.values())
        return State(
            at=self._wall(),
            live=self._verdict.live,
            reason=self._verdict.reason,
            message=self._verdict.message,
            clients=dict(sorted(clients.items())),
            exclusive=sorted(self._kept),
            starts_total=self._daemon.starts_total,
            crashes_total=self._crashes_total,
        )


def _where(
    cards: Mapping[str, MpsDevice], *, limits: Mapping[str, int], others: frozenset[str]
) -> tuple[str, int] | None:
    """Return the device with the most room for a probe and the size in MiB; None if none fits."""
    sizes = {
        uuid: size
        for uuid, card in cards.items()
        if uuid not in others and (size := size_mib(free_mib=card.free_mib, limit_mib=limits.get(uuid))) is not None
    }
    return max(sizes.items(), key=lambda item: (item[1], item[0])) if sizes else None
