"""What the statuses of quotas say of their guarantees, computed again down a tree of three levels."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Final

from dovetail.queue.limits.guarantee_status import guarantee_of, lent, waiting
from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.gate import Refused
from tests.core.queue.quota_tree.builders import make_tree
from tests.core.queue.quota_tree.test_turns_computed import GPUS, PARENTS, TEAMS, Departments
from tests.seeds import seeds

BOUND: Final = 1000 * GPUS


def children_of(name: str) -> list[str]:
    return [each for each, parent in PARENTS.items() if parent == name]


def lent_below(scene: Departments, name: str, *, there: int, further: int) -> Iterator[tuple[str, int]]:
    """What each quota below this one lends of its guarantee, where `further` of that of all of them is lent beyond."""
    children = children_of(name)
    used = {each: scene.used_below(each, more={}) for each in children}
    has = {each: 1000 * scene.guaranteed[each] for each in children}
    idle = {each: max(0, has[each] - used[each]) for each in children}
    borrowed = sum(max(0, used[each] - has[each]) for each in children)
    # What belongs to no child is used first.
    wanted = max(0, borrowed + further - max(0, there - sum(has.values())))
    out = min(sum(idle.values()), wanted)
    for each in children:
        own = int(Fraction(idle[each] * out, sum(idle.values()))) if out else 0
        yield each, own
        yield from lent_below(scene, each, there=has[each], further=own)


def drawn_jobs(random: Random) -> Iterator[Counted]:
    for number in range(random.randint(0, 8)):
        workers = random.randint(1, 3)
        yield Counted(
            uid=f"w{number}",
            subject=Subject(namespace=random.choice(TEAMS), user="ada"),
            milli=workers * random.choice([500, 1000]),
            queued=random.random() < 0.85,
            workers=workers,
            least=random.choice([None, 1]),
            refused=Refused(reason="Quota", message="too much") if random.random() < 0.15 else None,
        )


def waiting_within(scene: Departments, jobs: list[Counted]) -> Counter[str]:
    """What waits within the guarantee of its own quota: with all workers, else with the fewest of an elastic job."""
    found: Counter[str] = Counter()
    for job in jobs:
        team = job.subject.namespace
        if not job.queued or job.refused is not None or team not in PARENTS:
            continue
        left = 1000 * scene.guaranteed[team] - scene.used_below(team, more={}) - found[team]
        fewest = job.milli if job.least is None else job.milli // job.workers * job.least
        found[team] += next((milli for milli in (job.milli, fewest) if milli <= left), 0)
    return found


@seeds(150)
def test_statuses_say_what_is_used_lent_borrowed_and_waits(seed: int) -> None:
    random = Random(seed)
    scene = Departments(random)
    quotas = scene.quotas()
    jobs = list(drawn_jobs(random))
    for job in jobs:
        if not job.queued:
            team = job.subject.namespace
            scene.used[team] += job.milli
    running = [Counted(uid=team, subject=Subject(namespace=team, user="ada"), milli=milli, queued=False)
               for team, milli in scene.used.items()]  # fmt: skip
    counted = [*running, *(job for job in jobs if job.queued)]
    loans = loans_of(
        make_tree(*quotas, gpus=GPUS), counted=counted, pods=(), recent={},
        quota_of=lambda subject: quota_of(quotas, subject=subject),
    )  # fmt: skip
    of_others = dict(lent_below(scene, "", there=BOUND, further=scene.used["guest"]))
    waits = waiting_within(scene, jobs)
    lent_now, waiting_now = lent(loans), waiting(loans, counted=counted)
    for name in PARENTS:
        found = guarantee_of(name, loans=loans, lent=lent_now, waiting=waiting_now)
        assert found is not None
        used, has = scene.used_below(name, more={}), 1000 * scene.guaranteed[name]
        assert (found.gpus, found.used) == (scene.guaranteed[name], used / 1000)
        assert found.borrowed == max(0, used - has) / 1000
        assert found.lent == of_others[name] / 1000, name
        assert found.waiting == waits[name] / 1000, name
        assert found.memory is None
