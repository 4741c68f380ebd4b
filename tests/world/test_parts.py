"""What holds for every part that follows objects and writes others, whatever it is: see `parts`.

The end of a scene follows from the objects alone. So it is the same when each change is seen at once or all of them
together, when a watch misses some, when any write fails in any way, when the process is killed there, and when another
tenant has objects of the same names; a new process has nothing to do, and when everything is deleted nothing is kept.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Any, Final

import pytest

from tests.world.http import FAULTS, Fault, Weather
from tests.world.parts import PARTS
from tests.world.stage import Part, Site, Stage, Step, differences
from tests.world.tables import Table, tables
from tests.world.whole import WHOLE

# After this time, no timer is left of what was there before.
TIMERS_SECONDS: Final = 900.0
EVERY: Final = PARTS | WHOLE
Walk = Callable[[Stage, list[Step]], Stage]
RED, BLUE = Site(word="zebra"), Site(word="quagga")


def calm(stage: Stage, steps: list[Step]) -> Stage:
    """Each step once everything that follows from the one before is done."""
    for step in steps:
        stage.settle()
        step(stage)
    stage.settle()
    return stage


def hurried(stage: Stage, steps: list[Step]) -> Stage:
    """All steps at once."""
    stage.settle()
    for step in steps:
        step(stage)
    stage.settle()
    return stage


def blind(stage: Stage, steps: list[Step]) -> Stage:
    """The watches break before each second step, and see what it left when they come back."""
    for at, step in enumerate(steps):
        stage.weather.is_away = bool(at % 2)
        stage.server.wake()
        stage.pass_time(0.2 if stage.weather.is_away else stage.part.settle_seconds)
        step(stage)
    stage.weather.is_away = False
    stage.settle()
    return stage


def at_once(*steps: Step) -> Step:
    """The same step at each site."""

    def step(stage: Stage) -> None:
        for each in steps:
            each(stage)

    return step


def ended(part: Part, walk: Walk, *, weather: Weather | None = None) -> dict[str, Any]:
    """The end of the scene."""
    with closing(Stage(part, weather=weather)) as stage:
        found = walk(stage, part.scene(RED)).end(site=RED if part.is_of_sites else None)
        part.check(stage)
    assert weather is None or weather.failed, "the write that was to fail was never made"
    return found


def check(have: dict[str, Any], want: dict[str, Any], *, why: str = "") -> None:
    """Both ends are the same."""
    wrong = list(differences(have, want))
    assert not wrong, "\n".join([why, *wrong])


def both(part: Part, walk: Walk) -> dict[Site, dict[str, Any]]:
    """The end of each of two sites at which the same happens at the same time."""
    with closing(Stage(part)) as stage:
        walk(stage, list(map(at_once, part.scene(RED), part.scene(BLUE))))
        return {site: stage.end(site=site) for site in (RED, BLUE)}


def outline(end: dict[str, Any]) -> dict[str, Any]:
    """Which objects there are, and in which phase."""
    return {key: each.get("status", {}).get("phase", "") for key, each in end.items()}


def held(stage: Stage) -> dict[str, Table]:
    """Every table of the running part."""
    program: Any = stage.program
    roots = [program.part, *program.informers] if hasattr(program, "informers") else [program]
    return tables(*roots)


@pytest.mark.parametrize("name", [name for name, part in EVERY.items() if not part.is_of_time])
def test_changes_that_come_together_end_like_those_that_come_one_by_one(name: str) -> None:
    part = EVERY[name]
    wanted, _ = undisturbed(name)
    assert wanted
    if part.is_of_last_state:
        check(ended(part, hurried), wanted)
        check(ended(part, blind), wanted)
    else:
        check(outline(ended(part, blind)), outline(wanted))


@pytest.mark.parametrize("name", EVERY)
def test_a_new_process_has_nothing_to_do_and_knows_the_same(name: str) -> None:
    part = EVERY[name]
    for walk in (calm, hurried):
        with closing(Stage(part)) as stage:
            walk(stage, part.scene(RED))
            assert [each for each in stage.weather.idle if not each.startswith(part.renews)] == []
            mine, end, count = held(stage), stage.end(), len(stage.weather.writes)
            stage.restart()
            stage.settle()
            check(stage.end(), end)
            assert [each for each in stage.weather.writes[count:] if not each.startswith(part.renews)] == []
            fresh = held(stage) if part.compares_tables else mine
        for path in sorted(mine.keys() | fresh.keys()):
            name = (mine.get(path) or fresh[path]).name
            if name not in part.not_from_objects:
                have, want = (side[path].content if path in side else None for side in (mine, fresh))
                assert have == want, f"{path} has {have}, and a new process {want}"


@pytest.mark.parametrize("name", [name for name, part in EVERY.items() if not part.is_silent])
def test_of_what_is_deleted_nothing_is_kept(name: str) -> None:
    part = EVERY[name]
    with closing(Stage(part)) as stage:
        calm(stage, part.scene(RED))
        for _ in range(2):
            stage.clear()
            stage.pass_time(max(part.settle_seconds, TIMERS_SECONDS))
        kept = {*part.not_empty, "Reflector._selectors", "_Recent._entries"}
        left = {path: each.content for path, each in held(stage).items() if each.name not in kept}
    assert not {path: content for path, content in left.items() if content}


@pytest.mark.parametrize("name", [name for name, part in EVERY.items() if part.is_of_sites])
def test_two_tenants_with_equal_names_end_like_each_of_them_alone(name: str) -> None:
    part = EVERY[name]
    alone, _ = undisturbed(name)
    for walk in (calm, hurried) if part.is_of_last_state else (calm,):
        for site, found in both(part, walk).items():
            check(found, alone, why=site.word)


@cache
def undisturbed(name: str) -> tuple[dict[str, Any], list[str]]:
    """The end of the scene without a fault, and the writes that lead to it."""
    with closing(Stage(EVERY[name])) as stage:
        calm(stage, EVERY[name].scene(RED))
        assert stage.weather.writes or EVERY[name].is_silent, "it does nothing: is a kind absent that it needs?"
        return stage.end(site=RED if EVERY[name].is_of_sites else None), stage.weather.writes


def _points(part: Part, *, writes: list[str], fault: Fault) -> list[int]:
    """The numbers of the writes that fail in turn: other ones for each fault where there are too many."""
    seen = Counter[str]()
    chosen = []
    for at, what in enumerate(writes, start=1):
        seen[what] += 1
        # Of those that are repeated for ever, the first two.
        is_apt = not fault.startswith("deleted") or what.split()[1] in part.owns
        if is_apt and (not what.startswith(part.renews) or seen[what] < 3):
            chosen.append(at)
    apart = -(-len(chosen) // part.most_points)
    return chosen[FAULTS.index(fault) * apart // len(FAULTS) :: apart]


FAILING = [
    (name, fault)
    for name, part in EVERY.items()
    for fault in FAULTS
    if not part.is_silent and (part.owns or "deleted" not in fault)
]


@pytest.mark.parametrize(("name", "fault"), FAILING)
def test_a_write_that_fails_is_made_again(name: str, fault: Fault) -> None:
    part = EVERY[name]
    wanted, writes = undisturbed(name)
    for at in _points(part, writes=writes, fault=fault):
        weather = Weather(at=at, fault=fault, owns=part.owns)
        check(ended(part, calm, weather=weather), wanted, why=f"{fault}: {weather.failed}")
