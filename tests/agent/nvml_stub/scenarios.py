"""Scenarios of NVIDIA's library, each named after the trouble that it stands for."""

from dataclasses import dataclass
from typing import Final

from tests.agent.nvml_stub import GPU_IS_LOST, NOT_SUPPORTED, Process, Scenario

FIGURES: Final = ("util", "power", "celsius", "sm", "mem", "ecc_corrected", "ecc_uncorrected", "rows")
NOTHING: Final = dict.fromkeys(FIGURES, -1)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What the library plays, and what the report must say: health reasons by device, and how many devices."""

    scenario: Scenario
    reasons: tuple[str, ...] = ("", "")
    old_driver: bool = False


TROUBLES: Final = {
    "a consumer card that gives hardly a figure": Trouble(scenario=Scenario(figures={0: NOTHING})),
    "every optional call is refused": Trouble(
        scenario=Scenario(
            answers=[
                (call, -1, NOT_SUPPORTED)
                for call in (
                    "nvmlDeviceGetUtilizationRates",
                    "nvmlDeviceGetPowerUsage",
                    "nvmlDeviceGetClockInfo",
                    "nvmlDeviceGetFieldValues",
                    "nvmlDeviceGetTotalEccErrors",
                    "nvmlDeviceGetRemappedRows",
                    "nvmlDeviceGetComputeRunningProcesses_v3",
                    "nvmlDeviceGetComputeRunningProcesses_v2",
                    "nvmlDeviceGetProcessUtilization",
                    "nvmlEventSetCreate",
                    "nvmlDeviceGetMigMode",
                    "nvmlDeviceGetNvLinkState",
                    "nvmlDeviceGetTopologyCommonAncestor",
                )
            ]
        )
    ),
    "a GPU is lost while it is read": Trouble(
        scenario=Scenario(answers=[("nvmlDeviceGetUtilizationRates", 1, GPU_IS_LOST)]), reasons=("", "GpuIsLost")
    ),
    "a GPU that was lost before the agent began": Trouble(
        scenario=Scenario(answers=[("*", 1, GPU_IS_LOST)]), reasons=("",)
    ),
    "a call that takes 2 s": Trouble(
        scenario=Scenario(cards=1, delays_ms={"nvmlDeviceGetPowerUsage": 2000}), reasons=("",)
    ),
    "an old driver without the second versions": Trouble(
        scenario=Scenario(driver="470.256.02", processes=[Process(pid=7, mib=900)]), old_driver=True
    ),
    "MIG is on": Trouble(scenario=Scenario(slices={1: [9984, 9984, 4864]}), reasons=("", "", "", "")),
    "MIG is on and split into nothing": Trouble(scenario=Scenario(figures={1: {"mig": 1}}), reasons=("",)),
    "no row of memory is left to remap to": Trouble(
        scenario=Scenario(figures={0: {"rows": 512, "row_failure": 1}}), reasons=("RowRemapFailed", "")
    ),
    "a card that is not told of its processes' memory": Trouble(scenario=Scenario(processes=[Process(pid=7, mib=-1)])),
    "a node of sixteen cards": Trouble(scenario=Scenario(cards=16), reasons=("",) * 16),
}
