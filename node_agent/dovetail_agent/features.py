"""Which features an agent has."""

import argparse
from collections.abc import Sequence

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail_agent.feature import Feature


def features_of(args: argparse.Namespace, *, settings: Settings, client: Client) -> Sequence[Feature]:  # noqa: ARG001 - for the features to come
    """All that the command line and the configuration ask for, in the order in which they amend the report."""
    return ()
