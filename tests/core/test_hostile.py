"""Whatever a user stores, the audit and the tables of the command line take it."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.answers.jobs import job_row
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.audit.allocations import audit
from dovetail.kube import watch_stream
from tests.core import hostile

HOSTILE = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def page(texts: list[bytes]) -> bytes:
    return b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(texts) + b"]}"


@HOSTILE
@given(texts=st.lists(hostile.pods(), max_size=3))
def test_the_audit_takes_every_pod(texts: list[bytes]) -> None:
    unread: list[str] = []
    pods = watch_stream.page(
        page(texts), as_type=Pod, path="/pods", on_unreadable=lambda meta, _: unread.append(meta.name)
    )
    assert len(pods.items or ()) + len(unread) == len(texts)
    audit(nodes=[], gpunodes=[], pods=pods.items or ())


@HOSTILE
@given(texts=st.lists(hostile.gpujobs(), max_size=3))
def test_the_tables_take_every_job(texts: list[bytes]) -> None:
    healthy = hostile.text_of(
        {"metadata": {"name": "healthy", "namespace": "team"}, "spec": {"template": {"spec": {}}}}
    )
    jobs = watch_stream.page(
        page([*texts, healthy]), as_type=GPUJob, path="/gpujobs", on_unreadable=lambda *_: None
    ).items
    rows = [job_row(job) for job in jobs or ()]
    assert rows[-1].name == "healthy"
