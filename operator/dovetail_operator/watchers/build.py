"""Builds the watchers."""

import random
from collections.abc import Callable
from datetime import datetime

from dovetail.jobs.idle import IdleRules
from dovetail.kube.client import Client
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.state.state import State
from dovetail_operator.watchers.idle import IdleWatch
from dovetail_operator.watchers.kueue import KueueWatch
from dovetail_operator.watchers.placeholders import PlaceholderKeeper
from dovetail_operator.watchers.provisioning_requests import ProvisioningRequestKeeper
from dovetail_operator.watchers.services import ServiceKeeper


def build_watchers(
    client: Client,
    *,
    state: State,
    idle: IdleRules,
    changed: Callable[[str], None],
    post: Callable[[Announcement], None],
    now: Callable[[], datetime],
    rng: random.Random,
) -> tuple[IdleWatch, KueueWatch, ServiceKeeper, PlaceholderKeeper, ProvisioningRequestKeeper]:
    """Build the watchers of GPUJobs. `changed` gets the key of each job that a watcher has news about."""
    return (
        IdleWatch(client, state=state, rules=idle, changed=changed, post=post, now=now),
        KueueWatch(client, state=state, changed=changed),
        ServiceKeeper(client, state=state, post=post, rng=rng),
        PlaceholderKeeper(client, state=state, post=post, now=now, rng=rng),
        ProvisioningRequestKeeper(client, state=state, post=post, rng=rng),
    )
