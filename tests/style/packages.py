"""Where the packages of the product are."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = {
    "core/dovetail": "Core",
    "operator/dovetail_operator": "Operator",
    "scheduler_extender/dovetail_extender": "Extender",
    "node_agent/dovetail_agent": "Node agent",
    "admission_webhook/dovetail_webhook": "Webhook",
    "admission_webhook/dovetail_certificates": "Certificates",
    "operator/dovetail_release": "Clean-up and test of a release",
    "local_node/dovetail_local_node": "Local node",
    "gateway/dovetail_gateway": "Gateway",
    "cli/dovetail_cli": "Commands",
    "sandbox/dovetail_sandbox": "Sandbox",
}
