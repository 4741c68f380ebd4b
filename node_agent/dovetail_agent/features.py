"""Builds an agent's features."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder
from dovetail_agent.checkpoint.feature import CheckpointFeature
from dovetail_agent.checkpoint.helper_process import HelperCalls
from dovetail_agent.checkpoint.node_state import SeenWorld
from dovetail_agent.checkpoint.probe import probed
from dovetail_agent.checkpoint.state_files import CheckpointMarks
from dovetail_agent.devices.model import Provider
from dovetail_agent.feature.enforcement import Discovery
from dovetail_agent.feature.events import LIMITS, Events
from dovetail_agent.feature.protocol import Feature
from dovetail_agent.guards.bad_devices import BadDevicesFeature
from dovetail_agent.guards.memory import GuardRules
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.guards.strangers_feature import StrangersFeature
from dovetail_agent.mps.devices import NvmlDevices
from dovetail_agent.mps.feature import MpsFeature
from dovetail_agent.mps.state_file import clients_in
from dovetail_agent.processes.identity import PROC
from dovetail_agent.reshape.feature import ReshapeFeature
from dovetail_agent.startup_tree import StartupTree
from dovetail_agent.turns.cgroup_freezer import freezer_at
from dovetail_agent.turns.feature import TurnsFeature
from dovetail_agent.turns.state_files import Marks

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
        *([ReshapeFeature(provider)] if args.reshape else []),
        Discovery(),
    )


def _mps(args: argparse.Namespace) -> Iterator[Feature]:
    if args.mps_state is not None:
        yield MpsFeature(args.mps_state)


def _turns(args: argparse.Namespace, *, settings: Settings, events: EventRecorder) -> Iterator[Feature]:
    if args.turns is None:
        return
    turns = partial(
        TurnsFeature,
        partial(freezer_at, args.cgroups),
        marks=Marks(args.turns, clock=time.monotonic),
        turn_seconds=settings.turn_seconds,
    )
    if not args.suspend_to_host:
        yield turns()
        return
    mover = suspend_to_host(args, settings=settings, events=events)
    yield turns(around=mover.around, away=mover.away, shortest_turn=mover.shortest_turn, in_the_way=mover.in_the_way)
    yield mover


def suspend_to_host(args: argparse.Namespace, *, settings: Settings, events: EventRecorder) -> CheckpointFeature:
    """Return the suspend-to-host feature, with the driver's calls in a process of their own."""
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
