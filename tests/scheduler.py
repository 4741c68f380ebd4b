"""How pytest-xdist shares the tests out among the workers of a parallel run."""

from xdist.scheduler import LoadScopeScheduling

from tests.lanes import lane


class Lanes(LoadScopeScheduling):
    """Gives whole lanes to workers, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)
