"""Which addresses jobs may send mail to, and how much. Pure: the clock is an argument."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

HOUR_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MailRules:
    """The allowed `domains` and the number of mails.

    An empty list allows every domain; `*.example.org` means every domain below example.org. `per_hour` is how many
    mails each namespace may send within an hour. A mail to several addresses counts once for each.
    """

    domains: Sequence[str] = ()
    per_hour: int = 60

    def admits(self, address: str) -> bool:
        """Whether mails may go to that address."""
        domain = address.rpartition("@")[2].lower()
        return not self.domains or any(
            domain.endswith(allowed[1:]) if allowed.startswith("*.") else domain == allowed for allowed in self.domains
        )


ANYBODY: Final = MailRules()


@dataclass(slots=True)
class _Sent:
    # The time and size of each batch of mails, the latest last.
    batches: deque[tuple[float, int]]
    total: int = 0


class Allowance:
    """How many mails each namespace may still send.

    Has at most one entry per mail of the last hour.
    """

    def __init__(self, *, per_hour: int, clock: Callable[[], float]) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._sent: dict[str, _Sent] = {}
        # When it was last reported that a namespace has sent too many.
        self._said: dict[str, float] = {}

    def take(self, namespace: str, *, mails: int) -> bool:
        """Count these mails if there is room for all of them. Returns whether there is."""
        self._tidy()
        sent = self._sent.get(namespace)
        if (sent.total if sent else 0) + mails > self._per_hour:
            return False
        if sent is None:
            sent = self._sent[namespace] = _Sent(deque())
        sent.batches.append((self._clock(), mails))
        sent.total += mails
        return True

    def give_back(self, namespace: str, *, mails: int) -> None:
        """Undo the last count of so many mails, which were not sent. Others may have been counted since."""
        if (sent := self._sent.get(namespace)) is None:
            return
        for batch in reversed(sent.batches):
            if batch[1] == mails:
                sent.batches.remove(batch)
                sent.total -= mails
                return

    def is_news(self, namespace: str) -> bool:
        """Whether to report that the namespace has sent too many: once an hour.

        Asking counts as a report.
        """
        self._tidy()
        if namespace in self._said:
            return False
        self._said[namespace] = self._clock()
        return True

    def _tidy(self) -> None:
        before = self._clock() - HOUR_SECONDS
        for namespace in list(self._sent):
            sent = self._sent[namespace]
            while sent.batches and sent.batches[0][0] <= before:
                sent.total -= sent.batches.popleft()[1]
            if not sent.batches:
                del self._sent[namespace]
        self._said = {namespace: at for namespace, at in self._said.items() if at > before}
