"""Who is told what becomes of a GPUJob. Data only."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.meta import Described

NotifyEvent = Literal["Started", "Succeeded", "Failed", "TimedOut", "Cancelled", "Preempted"]
# What is told where nobody says what: how it ended.
ENDS: Final[tuple[NotifyEvent, ...]] = ("Succeeded", "Failed", "TimedOut", "Cancelled")
ADDRESS_PATTERN: Final = r"^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,186}[A-Za-z0-9])?$"
MOST_ADDRESSES: Final = 8


class NotifySpec(Described, frozen=True, kw_only=True):
    """Who is told what becomes of the job, by mail or by a webhook as the installation has it."""

    emails: Annotated[
        list[Annotated[str, Meta(pattern=ADDRESS_PATTERN, max_length=253)]],
        Meta(description="Mail addresses. A webhook is given them too.", max_length=MOST_ADDRESSES),
    ] = []
    events: Annotated[
        list[NotifyEvent],
        Meta(description="What is told. Empty: how the job ended, whichever way.", max_length=6),
    ] = []
