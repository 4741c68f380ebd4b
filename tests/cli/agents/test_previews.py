"""A preview is for one caller, one kind of change, one use, and some minutes."""

import pytest

from dovetail_cli.agents.previews import SECONDS, Kind, Preview, PreviewError, Previews
from tests.clock import Clock

ADAS = Preview(kind="cancel", caller="ada", namespace="red", name="train", uid="u", resource_version="7")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def previews(clock: Clock) -> Previews:
    return Previews(clock=clock)


def test_a_preview_is_taken_once(previews: Previews) -> None:
    identifier = previews.keep(ADAS)
    assert previews.take(identifier, kind="cancel", caller="ada") is ADAS
    with pytest.raises(PreviewError, match=f'^preview_id "{identifier}": there is no such preview, or it was used; '):
        previews.take(identifier, kind="cancel", caller="ada")


@pytest.mark.parametrize("kind", ["submit", "change"])
def test_a_preview_of_another_change_stays_for_its_own(previews: Previews, kind: Kind) -> None:
    identifier = previews.keep(ADAS)
    with pytest.raises(PreviewError, match="it is of cancel_job"):
        previews.take(identifier, kind=kind, caller="ada")
    assert previews.take(identifier, kind="cancel", caller="ada") is ADAS


def test_a_preview_of_another_caller_is_gone(previews: Previews) -> None:
    identifier = previews.keep(ADAS)
    with pytest.raises(PreviewError, match="it was for ada, and you are ben"):
        previews.take(identifier, kind="cancel", caller="ben")
    with pytest.raises(PreviewError, match="no such preview"):
        previews.take(identifier, kind="cancel", caller="ada")


def test_an_old_preview_is_refused(previews: Previews, clock: Clock) -> None:
    identifier = previews.keep(ADAS)
    clock.now += SECONDS + 1
    with pytest.raises(PreviewError, match="it is older than 10 minutes; preview_cancel gives a new one"):
        previews.take(identifier, kind="cancel", caller="ada")


def test_who_previews_without_end_loses_the_oldest(previews: Previews) -> None:
    first, *_, last = [previews.keep(ADAS) for _ in range(101)]
    assert previews.take(last, kind="cancel", caller="ada") is ADAS
    with pytest.raises(PreviewError, match="no such preview"):
        previews.take(first, kind="cancel", caller="ada")
