"""Events on refused pods, of objects with equal names in two namespaces, beside a plain list of those that exist."""

from random import Random
from typing import Any

import msgspec

from dovetail.api.builtin import Event, Job
from dovetail_operator.state.refused_pods import RefusedPods
from tests.containers import items_by_attribute
from tests.operator_.builders import at, make_child, make_job, make_pod
from tests.seeds import seeds

NAMESPACES = ("team", "other")
START = 0


def drawn(random: Random, *, number: int) -> Event:
    """An event about a batch Job: of any reason, before or after its start, with and without a time."""
    namespace, job = random.choice(NAMESPACES), random.choice("ab")
    seconds = random.randint(-3, 9)
    timed = random.choice([{"lastTimestamp": at(seconds)}, {"eventTime": at(seconds)}, {"lastTimestamp": None}])
    values: dict[str, Any] = {
        "metadata": {"name": f"e{number}", "namespace": namespace, "resourceVersion": "5"},
        "involvedObject": {
            "kind": "Job", "namespace": namespace, "name": job, "uid": f"uid-{namespace}-{job}-{random.randint(0, 1)}",
        },
        "reason": random.choice(["FailedCreate", "FailedCreate", "SuccessfulCreate"]),
        "message": f"Error creating: {number:03d}",
        **timed,
    }  # fmt: skip
    return msgspec.convert(values, Event)


def newest(events: list[Event], *, child: Job, since: int) -> str | None:
    """The words of the newest refusal since then, of equal times the last by its words; None without one."""
    found = [
        (when, event.message)
        for event in events
        if event.involved_object.uid == child.metadata.uid
        and event.reason == "FailedCreate"
        and (when := event.last_timestamp or event.event_time) is not None
        and when >= at(since)
    ]
    return max(found)[1].removeprefix("Error creating: ") if found else None


@seeds(80)
def test_the_newest_refusal_of_the_job_s_own_batch_job_is_told(seed: int) -> None:
    random, live = Random(seed), RefusedPods()
    there: dict[str, Event] = {}
    for number in range(25):
        if there and random.random() < 0.35:
            name = random.choice(sorted(there))
            live.changed("DELETED", event=there.pop(name))
        else:
            event = drawn(random, number=random.randint(0, 12))
            known = there.get(event.metadata.name)
            if known is not None:
                # An event stays with its object; a repeat has a later time.
                event = msgspec.structs.replace(event, involved_object=known.involved_object)
            there[event.metadata.name] = event
            live.changed("MODIFIED" if known else "ADDED", event=event)
        for namespace in NAMESPACES:
            name, run, created = random.choice("ab"), random.randint(0, 1), random.choice([None, 2, 5])
            job = make_job(name, workers=2, meta={"namespace": namespace})
            child = make_child(job, uid=f"uid-{namespace}-{name}-{run}", status={"startTime": at(START)}, completions=2)
            pods = [] if created is None else [make_pod(0, created=created)]
            since = START if created is None else created
            doubt, want = live.doubt(job, child=child, pods=pods), newest([*there.values()], child=child, since=since)
            assert (doubt is None) == (want is None), f"{number}: {doubt}, and the events say {want}"
            assert doubt is None or want in doubt.words
    for event in there.values():
        live.changed("DELETED", event=event)
    assert not any(items_by_attribute(live).values())
