"""MPS's supervisor over hours, on a daemon and devices that exist only here, beside what has to hold after each step.

Tenants come and go, the daemon crashes, hangs and comes back, servers end with their clients, probes fail, others close
devices, and tenants leave shared memory behind.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.mps.control import ControlError
from dovetail_agent.mps.daemon import Daemon, Pace
from dovetail_agent.mps.devices import MpsDevice
from dovetail_agent.mps.limits import limits_of
from dovetail_agent.mps.probe import Verdict
from dovetail_agent.mps.supervisor import Supervisor
from tests.agent.builders import allocated, make_tenant
from tests.agent.mps_machine import FakeCards, fractional
from tests.agent.procfs import make_proc

CARDS = [allocated(index).uuid for index in range(3)]
PODS = {40 + at: f"{at}1111111-2222-4333-8444-555555555555" for at in range(6)}
SILENCE_SECONDS = 30.0
PACE = Pace(first_seconds=5.0, longest_seconds=20.0, steady_seconds=60.0)


class Child:
    """The daemon's process: its defaults, its servers with their clients, and what each server was told."""

    def __init__(self, number: int, *, now: float) -> None:
        self.pid, self.began = number, now
        self.code: int | None = None
        self.answers_from = now
        self.defaults: dict[str, str] = {}
        self.servers: dict[int, list[int]] = {}
        self.told: dict[int, dict[str, str]] = {}

    def poll(self) -> int | None:
        return self.code

    def wait(self, _seconds: float = 0.0) -> int:
        return -15

    def terminate(self) -> None:
        self.code = -15

    kill = terminate


class Node:
    """One node; `seen` are the clients that the supervisor has been told of, by server."""

    def __init__(self, folder: Path, *, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.children: list[Child] = []
        self.tenants: dict[str, NodeTenant] = {}
        self.cards = FakeCards(cards={uuid: MpsDevice(free_mib=80_000, exclusive=False) for uuid in CARDS})
        self.closed_by_others: set[str] = set()
        self.left, self.starts_due_at, self.wait_seconds = "", 0.0, PACE.first_seconds
        self.is_good = True
        self.probes = 0
        # The daemon that was probed last with success, and whether it lost a server since.
        self.proven: Child | None = None
        self.next_server = 7
        # The daemons whose end counts already in the pace.
        self.ended: set[int] = set()
        monkeypatch.setattr(subprocess, "Popen", self._start)
        supplied: Any = self
        self.supervisor = Supervisor(
            daemon=Daemon(["mps"], variables={}, clock=lambda: self.now, pace=PACE),
            control=supplied, cards=self.cards, probe=self._probe, clock=lambda: self.now, wall=lambda: self.now,
            shared=supplied, clients=supplied, remember=lambda _: None,
            proc=make_proc(folder / "proc", pods=PODS),
        )  # fmt: skip

    # --- the daemon, its control program, shared memory ---------------------------------------------------------

    def _start(self, *_: Any, **__: Any) -> Child:
        assert self.daemon is None or self.daemon.code is not None, "one at a time"
        assert self.now >= self.starts_due_at, "it waits before another start"
        self.children.append(Child(len(self.children) + 1, now=self.now))
        return self.children[-1]

    @property
    def daemon(self) -> Child | None:
        return self.children[-1] if self.children else None

    def _answering(self, command: str) -> Child:
        child = self.daemon
        if child is None or child.code is not None or child.answers_from > self.now:
            raise ControlError(command, problem="no answer")
        return child

    def servers(self) -> tuple[int, ...]:
        return tuple(sorted(self._answering("get_server_list").servers))

    def clients(self, server: int) -> tuple[int, ...]:
        return tuple(self._answering("get_client_list").servers[server])

    def ask(self, command: str) -> str:
        child, words = self._answering(command), command.split()
        if words[0].startswith("set_default"):
            child.defaults[" ".join(words[:-1])] = words[-1]
        else:
            child.told.setdefault(int(words[1]), {})[" ".join([words[0], *words[2:-1]])] = words[-1]
        return ""

    def _probe(self, uuid: str, _size: int) -> Verdict:
        child = self._answering("probe")
        self.probes += 1
        assert uuid not in {
            device.uuid for each in self.tenants.values() if each.mode != "Fractional" for device in each.devices
        }
        self.proven = child if self.is_good else None
        return Verdict(live=self.is_good, reason="Probed" if self.is_good else "NotRefused", message="")

    def renew(self) -> None:
        self._answering("link")

    def left_over(self) -> str:
        return self.left

    def clear(self) -> None:
        assert not limits_of(self.tenants.values()).cards, "tenants use it"
        self.left = ""

    # --- steps --------------------------------------------------------------------------------------------------

    def come(self) -> None:
        index, uid = self.random.randrange(3), f"pod-{self.random.randrange(5)}"
        taken = {device.uuid: each.mode for each in self.tenants.values() for device in each.devices}
        mode = taken.get(CARDS[index], self.random.choice(["Fractional", "Fractional", "Exclusive"]))
        share, mib = self.random.choice([100, 300, 500]), self.random.choice([1024, 4096])
        if uid not in self.tenants and not (mode == "Exclusive" and CARDS[index] in taken):
            made = fractional(index, share_milli=share, memory_mib=mib, uid=uid)
            self.tenants[uid] = made if mode == "Fractional" else make_tenant(allocated(index), uid=uid)

    def go(self) -> None:
        gone = self.tenants.pop(self.random.choice(sorted(self.tenants))) if self.tenants else None
        if gone is not None and gone.mode == "Fractional" and self.random.random() < 0.5:
            self.left = "2000 MiB in 3 files"

    def serve(self) -> None:
        """A server begins with clients, or another client comes."""
        if self.daemon is not None and self.daemon.code is None:
            pids = self.random.sample(sorted(PODS), k=2)
            self.daemon.servers[self.next_server] = pids
            self.next_server += 1

    def end_server(self) -> None:
        if self.daemon is not None and self.daemon.servers:
            server = self.random.choice(sorted(self.daemon.servers))
            self.daemon.servers.pop(server)

    def crash(self) -> None:
        if self.daemon is not None and self.daemon.code is None:
            self.daemon.code = -9

    def hang(self) -> None:
        """It answers nothing for some time, perhaps longer than the supervisor waits."""
        if self.daemon is not None:
            self.daemon.answers_from = self.now + self.random.choice([5.0, 100.0])

    def turn(self) -> None:
        self.is_good = not self.is_good

    def close(self) -> None:
        uuid = self.random.choice(CARDS)
        if not self.cards.cards[uuid].exclusive:
            self.cards.cards[uuid] = replace(self.cards.cards[uuid], exclusive=True)
            self.closed_by_others.add(uuid)

    def wait(self) -> None:
        self.now += self.random.choice([5.0, 30.0, 400.0])

    # --- what holds ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.now += 5.0
        before, clients = self.daemon, self.supervisor._clients
        known = {server: dict(served) for server, served in clients.items()}
        ours_before, probes = set(self.supervisor._kept), self.probes
        was_over = before is None or before.pid in self.ended
        found = self.supervisor.step(list(self.tenants.values()))
        child, state = self.daemon, found.state
        self._check_pace(before)
        is_over = child is None or child.code is not None
        if was_over:
            assert (child is before) == (self.now < self.starts_due_at)
        elif before is not None and before.answers_from > self.now and before.code == -15:
            assert self.now - before.began >= SILENCE_SECONDS or self.swept_now(), "it had no time to answer"
        assert not (state.live and is_over)
        if state.live:
            assert self.proven is child, "what was proven of another daemon, or refuted since"
            assert not found.lost or self.probes > probes, "the next server may be another one"
        self._check_lost(found.lost, known=known, before=before)
        limits = limits_of(self.tenants.values())
        ours = {uuid for uuid in CARDS if self.cards.cards[uuid].exclusive} - self.closed_by_others
        assert ours <= set(state.exclusive) <= limits.cards
        if state.live:
            assert {uuid for uuid in CARDS if self.cards.cards[uuid].exclusive} >= limits.cards
        else:
            assert set(state.exclusive) <= ours_before, "nobody could work there"
        if child is not None and not is_over and child.answers_from <= self.now and before is child:
            self._check_told(child, limits=limits)
        assert not self.left or limits.cards

    def _check_pace(self, before: Child | None) -> None:
        """When the daemon may start again, after one that ended in this step."""
        if before is None or before.code is None or before.pid in self.ended:
            return
        self.ended.add(before.pid)
        if self.now - before.began >= PACE.steady_seconds:
            self.wait_seconds = PACE.first_seconds
        self.starts_due_at = self.now + self.wait_seconds
        self.wait_seconds = min(PACE.longest_seconds, 2 * self.wait_seconds)

    def _check_lost(
        self, lost: Mapping[str, str], *, known: Mapping[int, Mapping[int, str]], before: Child | None
    ) -> None:
        """Pods are told of a server that they were clients of, once it has ended or its daemon has."""
        is_over = before is not None and before.code is not None
        answers = before is not None and before.answers_from <= self.now
        gone = [server for server in known if is_over or (before and answers and server not in before.servers)]
        expected = {pod for server in gone for pod in known[server].values()}
        assert set(lost) == (set() if is_over and self.swept_now() else expected)
        assert not set(gone) & self.supervisor._clients.keys()

    def swept_now(self) -> bool:
        """Whether the daemon was ended because no tenant is left that it could serve."""
        return not limits_of(self.tenants.values()).cards and self.supervisor._verdict.reason == "Starting"

    def _check_told(self, child: Child, *, limits: Any) -> None:
        share = str(limits.percentage)
        memory = {uuid: f"{mib}M" for uuid, mib in limits.memory_mib.items()}
        assert child.defaults["set_default_active_thread_percentage"] == share
        for server in child.servers:
            assert child.told[server]["set_active_thread_percentage"] == share
        for uuid, mib in memory.items():
            assert child.defaults[f"set_default_device_pinned_mem_limit {uuid}"] == mib
            for server in child.servers:
                assert child.told[server][f"set_device_pinned_mem_limit {uuid}"] == mib


STEPS = (
    "come",
    "come",
    "go",
    "serve",
    "serve",
    "end_server",
    "crash",
    "hang",
    "turn",
    "close",
    "wait",
    "wait",
    "nothing",
)


@pytest.mark.parametrize("seed", range(25))
def test_limits_are_claimed_where_they_hold_and_no_device_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    node = Node(tmp_path, seed=seed, monkeypatch=monkeypatch)
    for _ in range(80):
        step = node.random.choice(STEPS)
        if step != "nothing":
            getattr(node, step)()
        node.step()
    node.tenants.clear()
    node.step()
    assert {uuid for uuid in CARDS if node.cards.cards[uuid].exclusive} <= node.closed_by_others
    assert node.supervisor._kept == set()
