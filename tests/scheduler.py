"""How pytest-xdist shares the tests out among the workers of a parallel run."""

from collections.abc import Mapping

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.lanes import FREE_SANDBOX, FREE_SANDBOXES, lane, sandbox_of


class Lanes(LoadScopeScheduling):
    """Gives whole lanes to workers, in the order in which the tests were collected, but those for which there is room.

    A file that needs a sandbox for itself waits in the queue, and not in a worker, until one is free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [work for other, work in self.assigned_work.items() if other is not node]
        has_room = sum(needs_free_sandbox(work) for work in others) < FREE_SANDBOXES
        if not has_room:
            # Where only such files are left, the first of them waits in the worker after all.
            chosen = next((scope for scope in self.workqueue if sandbox_of(scope) != FREE_SANDBOX), None)
            if chosen is not None:
                self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def needs_free_sandbox(work: Mapping[str, Mapping[str, bool]]) -> bool:
    """Whether a worker has such a file to run; `work` says by lane and test what is done."""
    return any(sandbox_of(scope) == FREE_SANDBOX and not all(tests.values()) for scope, tests in work.items())
