"""Which features an agent has."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail_agent.badcards_feature import BadCardsFeature
from dovetail_agent.enforcement import Discovery
from dovetail_agent.feature import Feature
from dovetail_agent.freezer_groups import freezer_at
from dovetail_agent.freezer_marks import Marks
from dovetail_agent.mps_feature import MpsFeature
from dovetail_agent.startup import StartupTree
from dovetail_agent.strangers_feature import StrangersFeature
from dovetail_agent.telling import Teller
from dovetail_agent.turns_feature import TurnsFeature

_COMPONENT: Final = "dovetail-agent"


def features_of(args: argparse.Namespace, *, settings: Settings, client: Client) -> Sequence[Feature]:
    """All that the command line and the configuration ask for, in the order in which they amend the report."""
    return (
        StartupTree(sys.stdout),
        *_kubelet(args, settings=settings),
        *_watchful(settings, client=client),
        *_turns(args, settings=settings),
        *_mps(args),
        Discovery(),
    )


def _mps(args: argparse.Namespace) -> Iterator[Feature]:
    if args.mps_state is not None:
        yield MpsFeature(args.mps_state)


def _turns(args: argparse.Namespace, *, settings: Settings) -> Iterator[Feature]:
    if args.turns is not None:
        marks = Marks(args.turns, clock=time.monotonic)
        yield TurnsFeature(partial(freezer_at, args.cgroups), marks=marks, turn_seconds=settings.turn_seconds)


def _watchful(settings: Settings, *, client: Client) -> Iterator[Feature]:
    teller = Teller(client, component=_COMPONENT)
    yield StrangersFeature(teller, policy=settings.strangers)
    yield BadCardsFeature(teller)


def _kubelet(args: argparse.Namespace, *, settings: Settings) -> Iterator[Feature]:
    if args.pod_resources is None:
        return
    # Only who asks kubelet pays for gRPC: it takes memory.
    from dovetail_agent.podresources_watch import KubeletDevices  # noqa: PLC0415

    yield KubeletDevices(
        node=args.node,
        socket=args.pod_resources,
        every_seconds=settings.monitor_update_interval,
        vendors=settings.vendors,
    )
