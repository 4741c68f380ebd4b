"""The terms of one process: what one term leaves to the next, and in which order a term ends."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from dovetail.config.settings import Settings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.leader_election import LeaseLostError
from dovetail.process.live_settings import LiveSettings
from dovetail_extender import main
from dovetail_extender.service import Extender, Options
from tests.extender.test_process import write_kubeconfig

ENVIRON = {"POD_NAMESPACE": "gpus"}
# One value that is no default for each of the extender's options.
OTHERWISE = Settings(
    policy="Pack",
    fragmentation_policy="fgd",
    hold_ttl_seconds=61,
    bind_deadline_seconds=9,
    memory_guard="Aggressive",
    tenants_per_device=7,
    utilization_smoothing=33,
    measurement_max_age=1234,
    dra_driver_absence=17,
    default_gpu_resource_name="amd.com/gpu",
    delivery="NRI",
)


def test_every_option_follows_the_configuration() -> None:
    said, usual = main.options_of(OTHERWISE, environ=ENVIRON), Options()
    assert not [each.name for each in fields(Options) if getattr(said, each.name) == getattr(usual, each.name)]
    rules = said.rules
    assert (rules.fragmentation, rules.hold_ttl_seconds, rules.rankings.usual.policy) == ("fgd", 61, "Pack")
    assert (said.smoothing_seconds, said.measurement_max_age_seconds, said.slices_absent_seconds) == (33, 1234, 17)
    assert (said.bind_deadline_seconds, said.delivery, said.namespace) == (9, "NRI", "gpus")
    assert (said.limits, said.vendors.default) == (OTHERWISE.limits, "amd.com/gpu")
    assert DEFAULT_VENDORS.default != "amd.com/gpu"


async def test_a_term_begins_with_nothing_of_the_one_before_and_with_the_settings_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = list[Extender]()
    stop = asyncio.Event()

    async def serve(extender: Extender, *, live: LiveSettings, **_how: Any) -> None:
        terms.append(extender)
        if len(terms) == 2:
            stop.set()
            return
        live.settings = Settings(hold_ttl_seconds=77)
        raise ExceptionGroup("term", [LeaseLostError("the-lease", holder="two")])

    monkeypatch.setattr(main, "_serve", serve)
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    args = main._parser().parse_args([f"--kubeconfig={kubeconfig}"])
    await asyncio.wait_for(main._extend(args, Settings(), stop), 60)
    first, second = terms
    assert [each._decisions._rules.hold_ttl_seconds for each in terms] == [30, 77]
    assert first.ledger is not second.ledger
    assert first._leadership is not second._leadership
    assert [each._leadership._heir for each in terms] == [True, False]


class Steps:
    """A term of which each step notes its name."""

    def __init__(self) -> None:
        self.taken = list[str]()
        self.registry = CollectorRegistry()
        self.metrics = self.verbs = self

    def __getattr__(self, name: str) -> Any:
        async def step(**_how: Any) -> None:
            # Whatever was cancelled before ends first.
            await asyncio.sleep(0)
            self.taken.append(name)
            if name == "run":
                try:
                    await asyncio.Event().wait()
                finally:
                    self.taken.append("ends")

        return step

    def application(self, _metrics: Any) -> web.Application:
        return web.Application()

    def add_to(self, _app: web.Application) -> None:
        """Nothing is asked."""

    def ready(self) -> dict[str, Any]:
        return {}

    pod_ready = ready

    @asynccontextmanager
    async def listening(self, _app: web.Application) -> AsyncIterator[int]:
        self.taken.append("listen")
        yield 0
        self.taken.append("close")


async def test_a_term_ends_from_the_requests_inwards_and_gives_the_lease_away_last() -> None:
    extender, endpoint, server, live = Steps(), Steps(), Steps(), Steps()
    endpoint.taken = server.taken = extender.taken
    stop = asyncio.Event()
    args = argparse.Namespace(metrics_port=None)
    parts: Any = {"server": server, "endpoint": endpoint, "live": live}
    term = asyncio.create_task(main._serve(extender, args=args, stop=stop, **parts))  # type: ignore[arg-type]
    # A second wait, for another extender that should take over, ends at once: the steps of its end are the same.
    await asyncio.wait_for(term, 60)
    assert extender.taken[-6:] == ["close", "drain", "ends", "ends", "withdraw", "resign"]
    assert live.taken == ["run", "ends"]
