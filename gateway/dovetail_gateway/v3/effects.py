"""v3: what else a change to a job would do, without the names of other tenants."""

from msgspec.structs import replace as with_fields

from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import problems as says
from dovetail.gpu.request import RequestError
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Strictly
from dovetail_gateway.v3.jobs import Jobs
from dovetail_gateway.v3.types.effects import PlannedChange
from dovetail_gateway.v3.types.jobs import JobPath


class Effects:
    """The handler of `/api/v3/jobs/{namespace}/{name}/effects`."""

    def __init__(self, answers: Answers, *, jobs: Jobs) -> None:
        self._answers = answers
        self._jobs = jobs

    async def get_effects(self, call: Call[JobPath, Strictly, PlannedChange]) -> Answer:
        """What a change to a job would do to it and to others; nothing is changed."""
        job = self._jobs.find(call.path, sees=call.sees)
        changed = _changed(job, by=call.body)
        try:
            found = await self._answers.effects(job, changed=changed, who=call.who, sees=call.sees)
        except RequestError as error:
            raise RequestFailedError(422, reason="Invalid", sentence=says.SPEC_UNUSABLE(problem=str(error))) from error
        return Answer(value=found)


def _changed(job: GPUJob, *, by: PlannedChange) -> GPUJob:
    spec = job.spec
    return with_fields(
        job,
        spec=with_fields(
            spec,
            cancel=spec.cancel or by.cancel,
            suspend=spec.suspend if by.held is None else by.held,
            priority=spec.priority if by.priority is None else by.priority,
        ),
    )
