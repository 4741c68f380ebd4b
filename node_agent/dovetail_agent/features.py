"""Builds an agent's features: those of each node, and what its options switch on.

What is optional (MPS, turns, suspend to host, reshaping, kubelet's answers) is imported where its option is set: an
agent without it neither loads it nor pays its memory.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder
from dovetail_agent.devices.model import Provider
from dovetail_agent.feature.enforcement import Discovery
from dovetail_agent.feature.events import LIMITS, Events
from dovetail_agent.feature.protocol import Feature
from dovetail_agent.guards.bad_devices import BadDevicesFeature
from dovetail_agent.guards.memory import GuardRules
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.guards.strangers_feature import StrangersFeature
from dovetail_agent.processes.identity import PROC
from dovetail_agent.startup_tree import StartupTree

if TYPE_CHECKING:
    from dovetail_agent.checkpoint.feature import CheckpointFeature

_COMPONENT: Final = "dovetail-agent"


def features_of(
    args: argparse.Namespace, *, settings: Settings, client: Client, provider: Provider
) -> Sequence[Feature]:
    """Return the configured features in the order in which they amend the report."""
    events = EventRecorder(client, component=_COMPONENT, limits=LIMITS)
    return (
        Events(events),
        StartupTree(sys.stdout),
        *_kubelet(args, settings=settings),
        *_watchful(settings, events=events),
        *_turns(args, settings=settings, events=events),
        *_mps(args),
        *_reshaping(args, provider=provider),
        Discovery(),
    )


def _mps(args: argparse.Namespace) -> Iterator[Feature]:
    if args.mps_state is None:
        return
    from dovetail_agent.mps.feature import MpsFeature  # noqa: PLC0415 - optional

    yield MpsFeature(args.mps_state)


def _reshaping(args: argparse.Namespace, *, provider: Provider) -> Iterator[Feature]:
    if not args.reshape:
        return
    from dovetail_agent.reshape.feature import ReshapeFeature  # noqa: PLC0415 - optional

    yield ReshapeFeature(provider)


def _turns(args: argparse.Namespace, *, settings: Settings, events: EventRecorder) -> Iterator[Feature]:
    if args.turns is None:
        return
    from dovetail_agent.turns.cgroup_freezer import freezer_at  # noqa: PLC0415 - optional
    from dovetail_agent.turns.feature import TurnsFeature  # noqa: PLC0415 - optional
    from dovetail_agent.turns.state_files import Marks  # noqa: PLC0415 - optional

    turns = partial(
        TurnsFeature,
        partial(freezer_at, args.cgroups),
        marks=Marks(args.turns, clock=time.monotonic),
        turn_seconds=settings.turn_seconds,
    )
    if not args.suspend_to_host:
        yield turns()
        return
    mover = _suspend_to_host(args, settings=settings, events=events)
    yield turns(around=mover.around, away=mover.away, shortest_turn=mover.shortest_turn, in_the_way=mover.in_the_way)
    yield mover


def _suspend_to_host(args: argparse.Namespace, *, settings: Settings, events: EventRecorder) -> "CheckpointFeature":
    """Return the suspend-to-host feature, with the driver's calls in a process of their own."""
    from dovetail_agent.checkpoint.feature import CheckpointFeature  # noqa: PLC0415 - optional
    from dovetail_agent.checkpoint.helper_process import HelperCalls  # noqa: PLC0415 - optional
    from dovetail_agent.checkpoint.node_state import SeenWorld  # noqa: PLC0415 - optional
    from dovetail_agent.checkpoint.probe import probed  # noqa: PLC0415 - optional
    from dovetail_agent.checkpoint.state_files import CheckpointMarks  # noqa: PLC0415 - optional
    from dovetail_agent.mps.devices import NvmlDevices  # noqa: PLC0415 - optional
    from dovetail_agent.mps.state_file import clients_in  # noqa: PLC0415 - optional

    calls, cards = HelperCalls(variables=os.environ), NvmlDevices()
    return CheckpointFeature(
        calls=calls,
        marks=CheckpointMarks(args.turns / "at-host", proc=PROC),
        world=SeenWorld(cards=cards, cgroups=args.cgroups, proc=PROC, mps_clients=partial(clients_in, args.mps_state)),
        probe=partial(probed, calls, cards=cards, variables=os.environ),
        events=events,
        turn_seconds=settings.suspend_turn_seconds,
    )


def _watchful(settings: Settings, *, events: EventRecorder) -> Iterator[Feature]:
    yield StrangersFeature(events, policy=settings.strangers)
    yield BadDevicesFeature(events)
    rules = GuardRules(policy=settings.memory_overuse, grace=timedelta(seconds=settings.memory_overuse_grace))
    yield MemoryGuardFeature(events, rules=rules)


def _kubelet(args: argparse.Namespace, *, settings: Settings) -> Iterator[Feature]:
    if args.pod_resources is None:
        return
    # Only an agent that asks kubelet imports gRPC, which takes memory.
    from dovetail_agent.kubelet.feature import KubeletDevices  # noqa: PLC0415

    yield KubeletDevices(
        node=args.node,
        socket=args.pod_resources,
        every_seconds=settings.monitor_update_interval,
        vendors=settings.vendors,
    )
