"""Reserved room over many changes, beside a plain list of what has to be kept, and until when.

Waiting jobs reserve room, publish it again with another time, and give it up. Pods take room and leave it behind, and
nodes go and come back.
"""

from random import Random

import msgspec

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode, ReservedRoom
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import parse
from dovetail_extender.holds.reserved import Reserved
from tests.clock import Clock
from tests.core.engine.builders import add_node, hold_devices, make_ledger
from tests.operator_.builders import at
from tests.seeds import seeds

NODES = ("a", "b")
KEPT_SECONDS = 5.0


class Cluster:
    """`expected` has what is asked for each job and node, with the time at which it is no longer kept."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger: Ledger = make_ledger(a=3, b=3)
        self.fit_cache, self.clock = FitCache(self.ledger), Clock()
        self.reserved = Reserved(ledger=self.ledger, fit_cache=self.fit_cache, clock=self.clock)
        self.rooms: dict[str, ReservedRoom] = {}
        self.expected: dict[tuple[str, str], list[tuple[Ask, float]]] = {}
        self.pods: dict[str, Claim] = {}
        self.made = 0

    # --- steps --------------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        uid, mode = self.random.choice(["uid-x", "uid-y"]), self.random.choice(["Exclusive", "TimeShared"])
        texts = ["1", "2"] if mode == "Exclusive" else ["4G,0.5", "1G,0.25"]
        where = self.random.sample(NODES, k=self.random.randint(1, 2))
        kept = {
            node: self.random.sample(texts, k=self.random.randint(1, 2)) for node in where if self.random.random() < 0.7
        }
        planned = [{"name": node, "workers": 1} for node in where]
        keeps = [{"name": node, "keeps": each} for node, each in kept.items()]
        room = msgspec.convert({"time": at(60), "nodes": planned, "kept": keeps, "mode": mode}, ReservedRoom)
        self.publish(uid, room=room)

    def again(self) -> None:
        """The same room, which the job may have a little later."""
        if self.rooms:
            uid = self.random.choice(sorted(self.rooms))
            self.publish(uid, room=msgspec.structs.replace(self.rooms[uid], time=at(self.random.randint(61, 99))))

    def give_up(self) -> None:
        uid = self.random.choice(["uid-x", "uid-y"])
        self.rooms.pop(uid, None)
        self.forget(uid)
        self.reserved.job_changed(uid, room=None)

    def publish(self, uid: str, *, room: ReservedRoom) -> None:
        known = self.rooms.get(uid)
        if known is None or msgspec.structs.replace(known, time=room.time) != room:
            self.rooms[uid] = room
            self.forget(uid)
            for each in room.kept:
                for text in each.keeps:
                    self.expect(uid, node=each.name, text=text, mode=room.mode, until=float("inf"))
        self.reserved.job_changed(uid, room=room)

    def take(self) -> None:
        """A pod takes a device that nothing has."""
        node, index = self.random.choice(NODES), self.random.randrange(3)
        if node in self.ledger.nodes() and all(device.share_milli == 0 for device in self.held(node, index)):
            self.made += 1
            hold_devices(self.ledger, node, index, key=f"pod-{self.made}")
            claim = self.ledger.claim(f"pod-{self.made}")
            assert claim is not None
            self.pods[claim.key] = claim

    def held(self, node: str, index: int) -> list[AllocatedDevice]:
        return [device for claim in self.ledger.claims_on(node) for device in claim.devices if device.index == index]

    def leave(self) -> None:
        if not self.pods:
            return
        claim = self.pods.pop(self.random.choice(sorted(self.pods)))
        self.ledger.release(claim.key)
        for uid, room in self.rooms.items():
            if any(each.name == claim.node for each in room.nodes):
                until = self.clock.now + KEPT_SECONDS
                self.expect(uid, node=claim.node, text="1", mode=room.mode, until=until)
        self.reserved.left(claim.key, node=claim.node, claim=lambda: claim)

    def come_or_go(self) -> None:
        node = self.random.choice(NODES)
        if node in self.ledger.nodes():
            self.ledger.drop_node(node)
        else:
            add_node(self.ledger, node, gpus=3)

    def pass_time(self) -> None:
        self.clock.now += self.random.choice([1.0, 2.0, 10.0])

    def make_way(self) -> None:
        """A plan takes precedence for a moment."""
        node = self.random.choice(NODES)
        self.reserved.release(node)
        assert not [claim for claim in self.ledger.claims_on(node) if claim.key.startswith("uid-")]
        self.reserved.refill(node)

    # --- what has to be -----------------------------------------------------------------------------------------

    def expect(self, uid: str, *, node: str, text: str, mode: Mode, until: float) -> None:
        self.expected.setdefault((uid, node), []).append((Ask(gpu=parse(text), mode=mode), until))

    def forget(self, uid: str) -> None:
        self.expected = {key: asks for key, asks in self.expected.items() if key[0] != uid}

    def check(self) -> None:
        """Every second: nothing is held that need not be, and what is not held does not fit."""
        self.reserved.review()
        for key in list(self.expected):
            self.expected[key] = [each for each in self.expected[key] if each[1] > self.clock.now]
        left = {key: [ask for ask, _ in asks] for key, asks in self.expected.items()}
        holds = [claim for claim in self.ledger.claims() if claim.key.startswith("uid-")]
        for claim in holds:
            asks = left.get((claim.key.split("/")[0], claim.node), [])
            assert self.ledger.is_hold(claim.key)
            asks.remove(next(ask for ask in asks if is_of(claim, ask=ask)))
        assert self.reserved.holding == len(holds)
        for (_, node), asks in left.items():
            for ask in asks if node in self.ledger.nodes() else ():
                found = self.fit_cache.check(ask, node=node, key="another")
                assert not hasattr(found, "claim"), "it fits, and is not kept"


def is_of(claim: Claim, *, ask: Ask) -> bool:
    assert ask.gpu is not None
    return (claim.mode, claim.milli) == (ask.mode, ask.gpu.total_milli)


STEPS = ("reserve", "reserve", "again", "give_up", "take", "take", "take", "leave", "leave", "pass_time", "make_way")


@seeds(30)
def test_what_a_waiting_job_has_reserved_is_kept_for_it_as_far_as_it_is_free_and_no_longer(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(60):
        step = cluster.random.choice(STEPS) if cluster.random.random() < 0.97 else "come_or_go"
        getattr(cluster, step)()
        cluster.check()
    for uid in ("uid-x", "uid-y"):
        cluster.reserved.job_changed(uid, room=None)
    assert not [claim for claim in cluster.ledger.claims() if claim.key.startswith("uid-")]
    assert (cluster.reserved._asks, cluster.reserved._until, cluster.reserved._rooms) == ({}, {}, {})
