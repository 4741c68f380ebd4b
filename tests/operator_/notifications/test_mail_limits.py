"""How many mails a namespace may send within an hour, compared with a model that keeps all of them."""

from random import Random

from dovetail_operator.notifications.notifier import HOUR_SECONDS, Allowance, MailRules
from tests.seeds import seeds

PER_HOUR = 5
# Often so little that a namespace goes on sending for hours.
WAITS = (0.0, 1.0, 60.0, 600.0, 1200.0, HOUR_SECONDS - 1, HOUR_SECONDS)


@seeds(20)
def test_within_any_hour_no_namespace_sends_more_and_none_is_refused_that_may(seed: int) -> None:
    rng, now = Random(seed), 0.0
    sent, said = list[tuple[float, str, int]](), dict[str, float]()
    allowance = Allowance(per_hour=PER_HOUR, clock=lambda: now)
    for _ in range(150):
        now += rng.choice(WAITS)
        namespace, mails = rng.choice("abc"), rng.choice([1, 1, 2, 3, 8])
        recent = sum(count for then, who, count in sent if who == namespace and then > now - HOUR_SECONDS)
        took = allowance.take(namespace, mails=mails)
        assert took == (recent + mails <= PER_HOUR), (recent, mails)
        if took and rng.random() < 0.3:
            allowance.give_back(namespace, mails=mails)
        elif took:
            sent.append((now, namespace, mails))
        else:
            is_news = said.get(namespace, -HOUR_SECONDS) <= now - HOUR_SECONDS
            assert allowance.is_news(namespace) is is_news
            if is_news:
                said[namespace] = now


def test_what_is_given_back_may_be_taken_again() -> None:
    allowance = Allowance(per_hour=2, clock=lambda: 0.0)
    assert allowance.take("a", mails=2)
    allowance.give_back("a", mails=2)
    assert allowance.take("a", mails=1)
    assert allowance.take("a", mails=1)
    assert not allowance.take("a", mails=1)


def test_what_is_given_back_is_what_was_taken_although_another_took_since() -> None:
    now = 0.0
    allowance = Allowance(per_hour=3, clock=lambda: now)
    assert allowance.take("a", mails=2)
    now = 10.0
    assert allowance.take("a", mails=1)
    allowance.give_back("a", mails=2)
    now = HOUR_SECONDS
    assert not allowance.take("a", mails=3)
    assert allowance.take("a", mails=2)


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
