"""Mails of the operator's process to a real SMTP server, over a kill."""

from pathlib import Path

import pytest

from dovetail_sandbox.cluster import Cluster
from tests.cluster.gate import Operator
from tests.cluster.jobs import Jobs
from tests.cluster.test_operator_faults import stopped
from tests.operator_ import mail

pytestmark = pytest.mark.cluster

__all__ = ["stopped"]

TOLD = {"emails": ["ada@example.org"], "events": ["Started", "Succeeded", "Failed"]}


async def test_each_change_is_mailed_once_over_a_kill_and_a_mail_that_is_refused_delays_no_job_and_is_an_event(
    sandbox: Cluster, jobs: Jobs, stopped: None, tmp_path: Path
) -> None:
    async with mail.serving() as box:
        box.refuses = {"nobody@example.org": "550 no such user"}
        url = f"smtp://127.0.0.1:{box.port}"
        operator = Operator(sandbox, identity="mailing", folder=tmp_path, DOVETAIL_NOTIFY_URL=url)
        try:
            await operator.start()
            await jobs.submit(notify=TOLD)
            await jobs.until("x", lambda status: status.notified == ["Started/1.0"])
            await operator.kill()
            await operator.start()
            await jobs.end()
            await jobs.submit("refused", run=1, exit_code=3, notify={"emails": ["nobody@example.org"]})
            await jobs.until("x", lambda status: status.notified == ["Started/1.0", "Succeeded"])
            await jobs.phase("Failed", "refused")
            events = await jobs.announced("NotificationFailed", "refused")
            (event,) = [each for each in events if each.reason == "NotificationFailed"]
            assert "refuses nobody@example.org" in event.message
            await jobs.until("refused", lambda status: status.notified == ["Failed"])
            assert box.subjects == ["Job 1 (x) has started", "Job 1 (x) has succeeded"]
        finally:
            await operator.close()
