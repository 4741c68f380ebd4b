"""What the estimated start of a waiting job rests on."""

from typing import Final

from dovetail.api.gpujob import QueuePlace
from dovetail.api.reasons.clause import Sentence, clause

ITS_TURN: Final = clause("TurnAfterOthers", "Its turn comes after jobs before it")
ON_CPU_FROM_THEN: Final = clause("OnCPUFromThen", "It runs on the CPU from then on")
VICTIMS_ENDED: Final = clause("VictimsHaveEnded", "The jobs preempted for it have ended by then at the latest")
WINDOW_OVER: Final = clause("WindowIsOver", "A reservation is over by then")
AND_WINDOW_OVER: Final = clause("AndWindowIsOver", ", and a reservation is over by then")

# Ends of running jobs, and what is known of these ends
ENDED_ON_NODE: Final = clause("EndedOnNode", "{jobs:job has|jobs have} ended on {node} by then")
ENDED_ON_NODES: Final = clause("EndedOnNodes", "{jobs:job has|jobs have} ended on {nodes} nodes by then")
BY_TIME_LIMITS: Final = clause("ByTimeLimits", " at the latest, by the time limits")
AS_CONFIGURED: Final = clause("AsConfigured", ", if {jobs} without a time limit run as long as is configured")
AS_JOBS_LIKE_THEM: Final = clause("AsJobsLikeThem", ", if they use as much of their time limits as jobs like them did")
AND_AS_CONFIGURED: Final = clause("AndAsConfigured", ", and {jobs} without one run as long as is configured")

# Of an operator that sets no clauses.
ON_BASIS: Final = clause("OnBasis", "{basis}")


def basis_of(place: QueuePlace) -> Sentence:
    """What the estimate of a place in the queue rests on."""
    if not place.basis_details:
        return ON_BASIS(basis=place.basis)
    return Sentence(message=place.basis, clauses=tuple(place.basis_details))
