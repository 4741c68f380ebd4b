"""The requests for new nodes of one scheduling cycle, over the operator's state. No I/O."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dovetail.api.gpujob import Provisioning
from dovetail.queue.growing.autoscaler_answer import Answer
from dovetail.queue.growing.growth import Growth, build_growth
from dovetail.queue.growing.requests import provisioning_request_name
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.verdicts import Verdict, Waits
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs


def growth_of(
    state: State,
    *,
    waiting: Mapping[str, str],
    previous: Mapping[str, Verdict],
    counted: Sequence[Counted],
    now: datetime,
) -> Growth | None:
    """The requests of a cycle; None without growing pools. `waiting` and `previous` are those of `requests_of`."""
    if not state.growing.rules.pools:
        return None
    requests = requests_of(state, waiting=waiting, previous=previous)
    return build_growth(
        state.growing.rules,
        view=state.store.view,
        requests=requests,
        answers=_answers_of(state, requests=requests, waiting=waiting),
        gate=state.store.quotas.gate(
            counted, children=children_of_jobs(state), capacity=state.store.quotas.capacity(state.store.view.ledger)
        ),
        now=now,
    )


def requests_of(
    state: State, *, waiting: Mapping[str, str], previous: Mapping[str, Verdict]
) -> dict[str, Provisioning]:
    """The requests for waiting jobs, by UID. `waiting` has their `namespace/name` by UID, `previous` their verdicts.

    A verdict is newer than the status, which follows it; after a restart there is only the status.
    """
    found = ((uid, _request_of(state, uid=uid, key=key, verdict=previous.get(uid))) for uid, key in waiting.items())
    return {uid: request for uid, request in found if request is not None}


def _request_of(state: State, *, uid: str, key: str, verdict: Verdict | None) -> Provisioning | None:
    if isinstance(verdict, Waits):
        return verdict.provisioning
    job = state.store.jobs.get(key)
    return None if job is None or job.metadata.uid != uid else job.status.provisioning


def _answers_of(state: State, *, requests: Mapping[str, Provisioning], waiting: Mapping[str, str]) -> dict[str, Answer]:
    """The cluster autoscaler's answers to these requests, by the job's UID."""
    answers, found = state.growing.answers, dict[str, Answer]()
    if not answers:
        return found
    for uid, request in requests.items():
        job = state.store.jobs.get(waiting[uid])
        if job is None:
            continue
        name = provisioning_request_name(request, of=job.metadata)
        if (answer := answers.get(f"{job.metadata.namespace}/{name}")) is not None:
            found[uid] = answer
    return found
