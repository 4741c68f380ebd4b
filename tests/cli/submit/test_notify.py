"""gbatch --notify-email and --notify-on."""

import pytest

from dovetail.api.gpujob import NotifySpec
from dovetail_cli.jobs import details
from dovetail_cli.submit import manifest, notify
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import NOW, make_job


def test_addresses_and_events_are_read_in_any_case_each_once() -> None:
    found = notify.read(["ada@x.org, bob@x.org", "ada@x.org"], events=["started,FAILED", "Failed"])
    assert found == NotifySpec(emails=["ada@x.org", "bob@x.org"], events=["Started", "Failed"])
    assert notify.read([], events=[]) is None


def test_finished_is_however_it_ends_and_all_is_everything() -> None:
    ends = ["Succeeded", "Failed", "TimedOut", "Cancelled"]
    assert notify.read(["a@x.org"], events=["finished"]) == NotifySpec(emails=["a@x.org"], events=ends)  # type: ignore[arg-type]
    every = notify.read([], events=["all"])
    assert every is not None
    assert set(every.events) == {"Started", "Preempted", *ends}


@pytest.mark.parametrize(
    "address", ["ada", "@x.org", "ada@", "a b@x.org", "a@x.org\nBcc: b@x.org", "ä@x.org", "a@x.org>"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r'--notify-email ".*": write a mail address such as ada@example\.org'):
        notify.read([address.replace("\n", " ")], events=[])


def test_too_many_addresses_and_unknown_events_are_refused() -> None:
    with pytest.raises(UsageError, match="--notify-email: 9 addresses, and 8 are allowed"):
        notify.read([f"a{at}@x.org" for at in range(9)], events=[])
    with pytest.raises(UsageError, match=r'--notify-on "Paused": allowed are Started, Succeeded, .*, Finished'):
        notify.read(["a@x.org"], events=["Paused"])


def test_the_job_carries_it_and_gjob_shows_it() -> None:
    asked = NotifySpec(emails=["a@x.org"])
    submission = manifest.Submission(name="a", command=["a"], request=None, image="busybox", notify=asked)
    job = manifest.build(submission, namespace="default")
    assert job.spec.notify == asked
    assert "Notifications\n  To=a@x.org\n  Events=Succeeded,Failed,TimedOut,Cancelled" in details.text(
        details.sections(job, now=NOW)
    )
    assert "Notifications" not in details.text(details.sections(make_job(), now=NOW))
