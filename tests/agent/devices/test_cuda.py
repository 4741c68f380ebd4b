"""What is passed to CUDA's driver library."""

from typing import Any, cast

from dovetail_agent.devices.cuda import Context, Driver


class Library:
    """Takes each call, and notes the numbers that it gets."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}

    def call(self, name: str, *args: Any) -> None:
        self.numbers[name] = [arg.value for arg in args if hasattr(arg, "value")]


def test_an_allocation_may_be_larger_than_a_number_of_32_bits() -> None:
    library = Library()
    Context(cast("Driver", library)).allocate(mib=80 << 10)
    assert library.numbers["cuMemAlloc_v2"] == [80 << 30]
