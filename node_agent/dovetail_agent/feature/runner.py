"""Runs an agent's features, and isolates them: none can end or delay another."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from prometheus_client.core import Metric

from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.kube.retry import Backoff, always, retrying
from dovetail.logs import get_logger
from dovetail_agent.feature.protocol import Feature, Seen, Wake

log = get_logger(__name__)

_AGAIN_SECONDS: Final = 10.0
T = TypeVar("T")


class FeatureRunner:
    """The features of one agent."""

    def __init__(self, features: Sequence[Feature] = (), *, again_seconds: float = _AGAIN_SECONDS) -> None:
        self._features = tuple(features)
        self._again_seconds = again_seconds
        self._acting: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def start(self, tasks: asyncio.TaskGroup, *, wake: Wake) -> None:
        """Run the features in this task group."""
        self._tasks = tasks
        for feature in self._features:
            tasks.create_task(self._run(feature, wake=wake))

    def assignments(self, seen: Seen) -> list[Assignment] | None:
        """Return the first answer of a feature."""
        answers = (_safely(feature, ask=lambda it: it.assignments(seen), otherwise=None) for feature in self._features)
        return next((answer for answer in answers if answer is not None), None)

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Return the status after all features."""
        for feature in self._features:
            status = _amended(feature, status=status, seen=seen)
        return status

    def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Let each feature act on the look, unless it still acts on an earlier look at the node."""
        if self._tasks is None:
            return
        for feature in self._features:
            key = (feature.name, seen.node.metadata.name)
            if key not in self._acting:
                acting = _act(feature, seen=seen, status=status)
                try:
                    task = self._tasks.create_task(acting)
                except RuntimeError:
                    # The agent is ending: the looking task sees that a moment later than the group.
                    acting.close()
                    return
                self._acting[key] = task
                task.add_done_callback(lambda _, key=key: self._acting.pop(key))  # type: ignore[misc]  # a default binds it now

    def forget(self, node: str) -> None:
        """Let each feature drop a node that the agent serves no more."""
        for feature in self._features:
            _safely(feature, ask=lambda it: it.forget(node), otherwise=None)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of all features."""
        nothing: Iterable[Metric] = ()
        for feature in self._features:
            yield from _safely(feature, ask=lambda it: list(it.metrics()), otherwise=nothing)

    async def _run(self, feature: Feature, *, wake: Wake) -> None:
        # The agent goes on without it.
        await retrying(
            lambda _: feature.run(wake),
            may_retry=always,
            failed=lambda error, _: _log(feature, error=error),
            backoff=Backoff(first_seconds=self._again_seconds, longest_seconds=self._again_seconds),
        )


def _amended(feature: Feature, *, status: GPUNodeStatus, seen: Seen) -> GPUNodeStatus:
    return _safely(feature, ask=lambda it: it.amend(status, seen=seen), otherwise=status)


async def _act(feature: Feature, *, seen: Seen, status: GPUNodeStatus) -> None:
    try:
        await feature.act(seen, status=status)
    except Exception as error:  # noqa: BLE001 - as above
        _log(feature, error=error)


def _safely(feature: Feature, *, ask: Callable[[Feature], T], otherwise: T) -> T:
    try:
        return ask(feature)
    except Exception as error:  # noqa: BLE001 - as above
        _log(feature, error=error)
        return otherwise


def _log(feature: Feature, *, error: Exception) -> None:
    log.warning("feature failed", feature=feature.name, error=f"{type(error).__name__}: {error}")
