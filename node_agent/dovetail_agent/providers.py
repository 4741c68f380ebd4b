"""Which source of figures an agent has."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from dovetail.logs import get_logger
from dovetail_agent.nvml import LIBRARY, NvmlProvider, library_there
from dovetail_agent.nvml_watch import Paces, Watch
from dovetail_agent.provider import Provider
from dovetail_agent.simulated import SimulatedProvider

log = get_logger(__name__)

AUTO: Final = "auto"
PROVIDERS: Final = (AUTO, NvmlProvider.name, SimulatedProvider.name)
# A first report without devices would make a healthy node look broken whenever its agent starts.
_FIRST_LOOK_SECONDS: Final = 15.0


@contextmanager
def opened(name: str, *, node: str | None, look_every: timedelta) -> Iterator[Provider]:
    """The provider of that name, `auto`: NVML where its library is and the agent serves one node, else simulated."""
    if name == SimulatedProvider.name or (name == AUTO and not _nvml_here(node)):
        yield SimulatedProvider()
        return
    assert node is not None, "the command line asks for it"
    watch = Watch(clock=partial(datetime.now, UTC), paces=paces_of(look_every))
    watch.start()
    try:
        watch.looked.wait(_FIRST_LOOK_SECONDS)
        yield NvmlProvider(watch, node=node)
    finally:
        watch.stop()


def paces_of(look_every: timedelta) -> Paces:
    """Who looks more often than we read the cards would be told the same again."""
    return Paces(look=min(Paces().look, look_every.total_seconds()))


def _nvml_here(node: str | None) -> bool:
    if node is None:
        return False
    if not library_there():
        log.warning("NVIDIA's devices of this node are not reported: the library is not there", library=LIBRARY)
        return False
    return True
