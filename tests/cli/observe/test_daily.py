"""The daily report's manifest: its commands exist, and it has the observer's account and no more."""

from pathlib import Path
from typing import Any, Final

import yaml

from dovetail_cli.app import COMMANDS, main

EXAMPLES: Final = Path(__file__).parents[3] / "examples"


def pod() -> dict[str, Any]:
    cron_job = yaml.safe_load((EXAMPLES / "observe-daily.yaml").read_text(encoding="utf-8"))
    spec: dict[str, Any] = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec | {"namespace": cron_job["metadata"]["namespace"]}


def test_its_commands_and_their_options_exist() -> None:
    for container in pod()["containers"]:
        words = [word for word in container["args"] if not word.startswith("-")]
        assert " ".join(words) in COMMANDS
        assert main([*container["args"], "--help"]) == 0
        assert main([*container["args"], "--no-such-option"]) == 2


def test_it_is_the_account_that_may_only_list() -> None:
    objects = list(yaml.safe_load_all((EXAMPLES / "observe.yaml").read_text(encoding="utf-8")))
    accounts = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in objects
        if each["kind"] == "ServiceAccount"
    }
    assert (pod()["namespace"], pod()["serviceAccountName"]) in accounts


def test_it_meets_pod_security_restricted() -> None:
    spec = pod()
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
