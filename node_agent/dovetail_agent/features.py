"""Which features an agent has."""

import argparse
from collections.abc import Iterator, Sequence

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail_agent.feature import Feature


def features_of(args: argparse.Namespace, *, settings: Settings, client: Client) -> Sequence[Feature]:  # noqa: ARG001 - for the features to come
    """All that the command line and the configuration ask for, in the order in which they amend the report."""
    return (*_kubelet(args, settings=settings),)


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
