"""Awaited writes as a model has them: who looked too early goes on once all that was written has come back."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.meta import ObjectMeta
from dovetail_operator.state.pending_writes import MAX_WAIT_SECONDS, Kind, PendingWrites
from tests.clock import Clock

OWNERS: Final = ("team/a", "team/b", "team/c")
OBJECTS: Final[Sequence[tuple[Kind, str]]] = (("GPUJob", "team/a"), ("GPUJob", "team/b"), ("Job", "team/a"))


class Step(NamedTuple):
    """What happens to one owner, and where it is about an object, to a version of it."""

    does: Literal["write", "event", "look", "forget", "pause"]
    owner: str
    thing: tuple[Kind, str]
    version: int


STEPS: Final = st.lists(
    st.builds(
        Step,
        does=st.sampled_from(["write", "write", "write", "event", "event", "look", "look", "forget", "pause"]),
        owner=st.sampled_from(OWNERS),
        thing=st.sampled_from(OBJECTS),
        version=st.integers(1, 6),
    ),
    max_size=30,
)


class Model:
    """Each owner's awaited objects with their deadlines, the newest version that anyone awaits, and who looked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.awaited: dict[str, dict[tuple[Kind, str], float]] = {owner: {} for owner in OWNERS}
        self.versions: dict[tuple[Kind, str], int] = {}
        self.looked: set[str] = set()

    def write(self, owner: str, thing: tuple[Kind, str], version: int) -> None:
        self.versions[thing] = max(version, self.versions.get(thing, 0))
        self.awaited[owner][thing] = self.now + MAX_WAIT_SECONDS

    def event(self, thing: tuple[Kind, str], version: int) -> set[str]:
        """Who goes on."""
        if version < self.versions.get(thing, 0):
            return set()
        waited = {owner for owner in OWNERS if self.awaited[owner].pop(thing, None) is not None}
        self.versions.pop(thing, None)
        resumed = {owner for owner in waited & self.looked if not self.awaited[owner]}
        self.looked -= resumed
        return resumed

    def look(self, owner: str) -> float:
        left = max(self.awaited[owner].values(), default=self.now) - self.now
        if left > 0:
            self.looked.add(owner)
            return left
        self.forget(owner)
        return 0.0

    def forget(self, owner: str) -> None:
        self.looked.discard(owner)
        self.awaited[owner].clear()
        # A version that nobody waits for any more is none.
        self.versions = {
            thing: version
            for thing, version in self.versions.items()
            if any(thing in awaited for awaited in self.awaited.values())
        }


def meta_of(thing: tuple[Kind, str], *, version: int) -> ObjectMeta:
    namespace, name = thing[1].split("/")
    return ObjectMeta(namespace=namespace, name=name, resource_version=str(version))


@given(steps=STEPS)
@settings(max_examples=300)
def test_each_owner_waits_for_what_was_written_for_it_and_goes_on_once(steps: list[Step]) -> None:
    clock, model = Clock(), Model()
    clock.now = model.now
    pending = PendingWrites(clock=clock)

    def event(thing: tuple[Kind, str], version: int) -> None:
        arrival = pending.observed(thing[0], meta=meta_of(thing, version=version))
        assert sorted(arrival.resumed) == sorted(model.event(thing, version))

    for step in steps:
        match step.does:
            case "write":
                written = meta_of(step.thing, version=step.version)
                pending.await_object(step.owner, kind=step.thing[0], written=written, known=None)
                model.write(step.owner, step.thing, step.version)
            case "event":
                event(step.thing, step.version)
            case "look":
                assert pending.wait_seconds(step.owner) == model.look(step.owner)
            case "forget":
                pending.forget(step.owner)
                model.forget(step.owner)
            case "pause":
                clock.now = model.now = model.now + step.version * MAX_WAIT_SECONDS / 4
    for thing in OBJECTS:
        event(thing, 9)
    assert [pending.wait_seconds(owner) for owner in OWNERS] == [0.0, 0.0, 0.0]
    assert [len(table) for table in (pending._objects, pending._deadlines, pending._deferred)] == [0, 0, 0]
