"""Whether MPS's limits hold is tried with real processes on our stand-in for CUDA's library."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail_agent.mps.probe import Verdict, probed, size_mib
from tests.agent.cuda_stub import built

Try = Callable[..., Verdict]


@pytest.fixture
def tried(tmp_path: Path) -> Try:
    """Probes a card that plays these lines; `daemon` says whether MPS's daemon is there."""

    def probe(*lines: str, daemon: bool = True, library: bool = True, seconds: float = 30.0) -> Verdict:
        pipes, scenario = tmp_path / "pipe", tmp_path / "scenario"
        pipes.mkdir()
        scenario.write_text("\n".join(lines))
        if daemon:
            (pipes / "control").touch()
        variables = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_STUB_SCENARIO": str(scenario)}
        if library:
            variables["LD_LIBRARY_PATH"] = str(built())
        return probed("GPU-a", size=1024, variables=variables, seconds=seconds)

    return probe


def test_a_client_that_is_refused_beyond_its_limit_proves_it(tried: Try) -> None:
    assert tried() == Verdict(
        live=True, reason="Probed", message="a client with a limit of 512 MiB was refused 1024 MiB"
    )


def test_limits_that_do_not_bind_are_not_claimed(tried: Try) -> None:
    verdict = tried("enforce 0")
    assert (verdict.live, verdict.reason) == (False, "NotRefused")
    assert "could take 1024 MiB" in verdict.message


def test_a_client_that_finds_no_daemon_runs_without_limits_and_proves_nothing(tried: Try) -> None:
    assert tried(daemon=False).reason == "NotRefused"


def test_a_full_card_refuses_everybody_and_proves_nothing(tried: Try) -> None:
    verdict = tried("card 900")
    assert (verdict.live, verdict.reason) == (False, "ProbeFailed")
    assert "without a limit could not take 1024 MiB" in verdict.message


def test_a_client_that_is_refused_what_its_limit_allows_proves_nothing(tried: Try) -> None:
    verdict = tried("context 450")
    assert (verdict.live, verdict.reason) == (False, "ProbeFailed")
    assert "failed before it asked for more: cuMemAlloc_v2: out of memory (2)" in verdict.message


def test_an_error_that_is_no_refusal_of_memory_proves_nothing(tried: Try) -> None:
    assert "MPS server not ready (807)" in tried("answer cuCtxCreate_v2 807").message


def test_a_client_that_hangs_is_ended_and_proves_nothing(tried: Try) -> None:
    verdict = tried("delay cuInit 60000", seconds=0.5)
    assert verdict.message.endswith("it did not come back in 0.5 s")


def test_without_cuda_s_library_it_says_so(tried: Try) -> None:
    assert "driver library is not there" in tried(library=False).message


@pytest.mark.parametrize(
    ("free", "limit", "size"),
    [
        (80_000, None, 2048),
        (80_000, 3000, 1500),
        (1500, None, 988),
        (80_000, 1000, None),
        (900, None, None),
    ],
)
def test_a_probe_takes_little_and_stays_below_the_daemon_s_own_limit(
    free: int, limit: int | None, size: int | None
) -> None:
    assert size_mib(free_mib=free, limit_mib=limit) == size
