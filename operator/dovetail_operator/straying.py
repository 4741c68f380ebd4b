"""Batch Jobs that no watch tells of any more, since somebody took off the label by which they are followed.

Their jobs would be said to run for ever. So whoever seems to have lost its batch Job is looked after once, before
anything is planned for it anew.
"""

from dovetail.kube.client import Client
from dovetail.kube.objects import Job
from dovetail_operator import effects
from dovetail_operator.observed import Observed


class Straying:
    """Finds them; ask it each time that a job is looked at."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Keys of jobs of which it is known that they have lost their batch Job.
        self._lost: set[str] = set()

    async def found(self, key: str, seen: Observed | None) -> Job | None:
        """The batch Job, with its label again, of a job that is said to run and seems to have none."""
        if seen is None or seen.child is not None or seen.job.status.phase != "Running":
            self._lost.discard(key)
            return None
        if key in self._lost:
            return None
        found = await effects.find_child(self._client, seen.job)
        self._lost.add(key)
        return found
