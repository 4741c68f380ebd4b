"""How many mails a namespace may send within an hour, compared with a model that keeps all of them."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail_operator.notifications.mail_limits import HOUR_SECONDS, Allowance, MailRules

PER_HOUR = 5
Steps = list[tuple[str, int, float]]
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 8), st.sampled_from([0.0, 1.0, 600.0, 3599.0, 3600.0])), max_size=60
)


@given(STEPS)
def test_within_any_hour_no_namespace_sends_more_and_none_is_refused_that_may(
    steps: list[tuple[str, int, float]],
) -> None:
    now, sent = 0.0, list[tuple[float, str, int]]()
    allowance = Allowance(per_hour=PER_HOUR, clock=lambda: now)
    for namespace, mails, wait in steps:
        now += wait
        recent = sum(count for at, who, count in sent if who == namespace and at > now - HOUR_SECONDS)
        took = allowance.take(namespace, mails=mails)
        assert took == (recent + mails <= PER_HOUR)
        if took:
            sent.append((now, namespace, mails))


def test_what_is_given_back_may_be_taken_again() -> None:
    allowance = Allowance(per_hour=2, clock=lambda: 0.0)
    assert allowance.take("a", mails=2)
    allowance.give_back("a", mails=2)
    assert allowance.take("a", mails=1)
    assert allowance.take("a", mails=1)
    assert not allowance.take("a", mails=1)


def test_that_there_are_too_many_is_said_once_an_hour() -> None:
    now = 0.0
    allowance = Allowance(per_hour=1, clock=lambda: now)
    assert [allowance.is_news("a"), allowance.is_news("a"), allowance.is_news("b")] == [True, False, True]
    now = HOUR_SECONDS
    assert allowance.is_news("a")


def test_domains_are_compared_whole() -> None:
    rules = MailRules(domains=["example.org", "*.lab.org"])
    admitted = ["a@example.org", "a@EXAMPLE.ORG", "a@x.lab.org"]
    refused = [
        "a@xexample.org",
        "a@example.org.evil",
        "a@sub.example.org",
        "a@lab.org",
        "a@xlab.org",
        "example.org@evil",
    ]
    assert [rules.admits(each) for each in (*admitted, *refused)] == [True] * 3 + [False] * 6
    assert MailRules().admits("a@anywhere")
