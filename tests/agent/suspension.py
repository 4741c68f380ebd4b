"""A node for the tests of suspend to host: tenants on our stand-in for CUDA's library, and a freezer that is a set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace as with_fields

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.checkpoint.admission import Candidate, OnDevice
from dovetail_agent.checkpoint.calls import Calls, LibraryCalls, ProcessState
from dovetail_agent.checkpoint.state_files import CheckpointMarks
from dovetail_agent.checkpoint.suspend_to_host import SuspendToHost
from dovetail_agent.devices.cuda import Driver
from dovetail_agent.turns.suspender import Refusal
from tests.agent.builders import allocated, make_tenant
from tests.agent.cuda_stub import CudaStub

CARD = allocated(0).uuid
CARD_MIB = 81559


@dataclass
class FakeFreezer:
    """Freezes by keeping a set; what is in `refuses` it refuses once."""

    frozen: set[str] = field(default_factory=set)
    refuses: set[str] = field(default_factory=set)
    name: str = "fake"

    def suspend(self, tenant: NodeTenant) -> Refusal | None:
        if "suspend" in self.refuses:
            self.refuses.discard("suspend")
            return Refusal(reason="FreezeTimedOut", message="it did not freeze")
        self.frozen.add(tenant.uid)
        return None

    def resume(self, tenant: NodeTenant) -> Refusal | None:
        if "resume" in self.refuses:
            self.refuses.discard("resume")
            return Refusal(reason="ThawFailed", message="it did not thaw")
        self.frozen.discard(tenant.uid)
        return None


class WatchedCalls:
    """The stand-in's calls, of which none may come while its process is frozen: there it would hang. Nor may a process
    be brought back onto a card without room: there it would be lost."""

    def __init__(self, calls: Calls, *, rig: "Rig") -> None:
        self._calls = calls
        self._rig = rig

    def state(self, pid: int) -> ProcessState:
        return self._calls.state(pid)

    def lock(self, pid: int, *, timeout_ms: int) -> None:
        self._calls.lock(self._awake(pid), timeout_ms=timeout_ms)

    def checkpoint(self, pid: int) -> None:
        self._calls.checkpoint(self._awake(pid))

    def restore(self, pid: int) -> None:
        if self.state(pid) is ProcessState.CHECKPOINTED:
            assert self._rig.stub.resident_mib + self._rig.mib[str(pid)] <= CARD_MIB, "a restore without room is final"
        self._calls.restore(self._awake(pid))

    def unlock(self, pid: int) -> None:
        self._calls.unlock(self._awake(pid))

    def _awake(self, pid: int) -> int:
        assert str(pid) not in self._rig.freezer.frozen, "a call to a frozen process hangs"
        return pid


@dataclass
class Rig:
    """One card and its tenants; each has one process, whose number is also its pod's UID."""

    folder: Path
    stub: CudaStub = field(default_factory=CudaStub)
    freezer: FakeFreezer = field(default_factory=FakeFreezer)
    mib: dict[str, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    replaced: set[int] = field(default_factory=set)
    host_free_mib: int = 1 << 20
    candidates: dict[str, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.suspender = self.agent()

    def agent(self) -> SuspendToHost:
        """A suspender as a new agent has it: all that it knows of what was is on disk."""
        marks = CheckpointMarks(self.folder, proc=self.folder)
        marks.prepare()
        calls = WatchedCalls(LibraryCalls(Driver(self.stub.path)), rig=self)
        return SuspendToHost(self.freezer, calls=calls, marks=marks, world=self)

    def tenant(self, pid: int, *, mib: int) -> NodeTenant:
        """A tenant that has begun on the card."""
        self.stub.add(f"process {pid} {mib}")
        self.mib[str(pid)] = mib
        return self.known(pid)

    def known(self, pid: int) -> NodeTenant:
        uid = str(pid)
        tenant = make_tenant(allocated(0, memory_mib=self.mib[uid]), uid=uid)
        return with_fields(tenant, mode="TimeShared", namespace="ml", name=f"job-{uid}")

    def candidate(self, tenant: NodeTenant) -> Candidate:
        used = self.mib[tenant.uid]
        usual = Candidate(
            name=f"{tenant.namespace}/{tenant.name}",
            processes=[OnDevice(pid=int(tenant.uid), uuid=CARD, used_mib=used)],
            promised_mib={CARD: used},
            host_free_mib=self.host_free_mib,
        )
        return self.candidates.get(tenant.uid, usual)

    def crowded(self, tenant: NodeTenant) -> bool:
        return sum(self.mib.values()) > CARD_MIB

    def free_mib(self) -> Mapping[str, int]:
        return {CARD: CARD_MIB - self.stub.resident_mib}

    def started(self, pid: int, *, pod_uid: str = "") -> int | None:
        return None if pid in self.gone or (pod_uid and pid in self.replaced) else pid * 10

    def state(self, pid: int) -> ProcessState:
        return ProcessState(self.stub.state(pid))
