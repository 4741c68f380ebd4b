"""Which guest has which record and run, through replacements and in two namespaces; and what is said of each once."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.jobs.guests.kind import Guest
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.watchers.guests.directory import Directory, Known, key_of_pod
from dovetail_operator.watchers.guests.notices import Notices
from tests.containers import items_by_attribute
from tests.operator_.watchers.guests.test_keeper import KIND, held, pod, record

KEY = "team/job-train"


def known(*, of: str = "", **metadata: Any) -> Known:
    found = held()
    annotations = found.metadata.annotations | {names.RUN: metadata.pop("run", "r1")}
    meta = msgspec.structs.replace(found.metadata, annotations=annotations, **metadata)
    return Known(guest=msgspec.structs.replace(found, metadata=meta), kind=KIND, of=of)


def test_guests_of_one_name_and_run_in_two_namespaces_are_two() -> None:
    directory = Directory()
    ours, theirs = known(), known(namespace="lab", uid="uid-theirs")
    for each in (ours, theirs):
        directory.put(each)
    assert (directory.at(KEY), directory.at("lab/job-train")) == (ours, theirs)
    assert [directory.of_run("r1", namespace=each) for each in ("team", "lab", "other")] == [KEY, "lab/job-train", None]
    directory.drop(theirs)
    assert (directory.of_run("r1", namespace="team"), directory.of_run("r1", namespace="lab")) == (KEY, None)


def test_the_late_end_of_a_guest_leaves_its_successor() -> None:
    directory = Directory()
    first, second = known(), known(uid="uid-second", run="r2")
    directory.put(first)
    directory.put(second)
    directory.drop(first)
    assert (directory.at(KEY), directory.of_run("r2", namespace="team")) == (second, KEY)
    directory.drop(second)
    assert (directory.at(KEY), directory.of_run("r2", namespace="team"), list(directory)) == (None, None, [])


def test_a_record_of_another_guest_of_the_name_has_none() -> None:
    directory = Directory()
    directory.put(known())
    assert directory.of_record(record()) is not None
    directory.put(known(uid="uid-second"))
    assert directory.of_record(record()) is None


def test_of_guests_and_pods_that_have_gone_nothing_is_kept() -> None:
    directory = Directory()
    for number in range(5):
        directory.put(each := known(run=f"r{number}"))
        directory.put(more := known(of=KEY, name=f"more-{number}", uid=f"uid-more-{number}"))
        assert directory.added_to(KEY) == [more]
        directory.drop(more)
        directory.drop(each)
    assert directory.added_to(KEY) == []
    assert +items_by_attribute(directory) == {}


def test_a_pod_that_waits_by_itself_is_found_by_its_own_uid_alone() -> None:
    directory, grown = Directory(), pod("more")
    assert directory.added_pod(grown.metadata) is None
    meta = msgspec.structs.replace(held().metadata, name="more", uid=grown.metadata.uid)
    by_itself = Known(guest=Guest(metadata=meta), kind=KIND, of=KEY)
    directory._by_key[key_of_pod(grown.metadata)] = by_itself
    assert directory.added_pod(grown.metadata) is by_itself
    assert directory.added_pod(msgspec.structs.replace(grown.metadata, uid="uid-next")) is None
    directory._by_key[key_of_pod(grown.metadata)] = Known(guest=Guest(metadata=meta), kind=KIND)
    assert directory.added_pod(grown.metadata) is None


@pytest.mark.parametrize("of_pod", [False, True])
def test_a_sentence_is_said_once_until_another_one_is_or_the_trouble_is_over(of_pod: bool) -> None:
    said = list[Announcement]()
    notices, about = Notices(said.append), pod("p")

    def say(message: str) -> None:
        if of_pod:
            notices.say_of_pod(about, message=message)
        else:
            notices.say(known(), message=message)

    uid = about.metadata.uid if of_pod else "uid-guest"
    for message in ("a", "a", "b", "b", "a"):
        say(message)
    notices.forget(uid)
    say("a")
    assert [each.message for each in said] == ["a", "b", "a", "a"]
    kind = "Pod" if of_pod else "Job"
    assert {(each.of.kind, each.severity, each.reason) for each in said} == {(kind, "Warning", "NotQueued")}
    notices.forget(uid)
    assert not notices._said


def test_what_is_said_of_one_object_is_said_of_its_successor_too() -> None:
    said = list[Announcement]()
    notices = Notices(said.append)
    for uid in ("u1", "u2"):
        found = pod("p")
        meta = msgspec.structs.replace(found.metadata, uid=uid)
        notices.say_of_pod(msgspec.structs.replace(found, metadata=meta), message="a")
    assert [each.about.uid for each in said] == ["u1", "u2"]


def test_pods_of_one_name_in_two_namespaces_have_two_records() -> None:
    keys = set()
    for namespace in ("team", "lab"):
        keys.add(key_of_pod(msgspec.structs.replace(pod("p").metadata, namespace=namespace)))
    assert len(keys) == 2
