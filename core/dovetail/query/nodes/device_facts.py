"""What a node and its devices are and do, as the lines of the tree that agents and the gateway print. Pure."""

from dovetail.api.gpunode import Device, GPUNodeStatus


def node_line(name: str, *, status: GPUNodeStatus) -> str:
    """The node with its provider and versions."""
    versions = (("driver", status.driver_version), ("runtime", status.runtime_version))
    about = [*([status.provider] if status.provider else []), *(f"{what} {text}" for what, text in versions if text)]
    return f"{name} ({', '.join(about)})" if about else name


def device_line(device: Device, *, reason: str) -> str:
    """The device with its index, model, compute capability, and why it takes no work."""
    capability = f", compute capability {device.compute_capability}" if device.compute_capability else ""
    return f"{device.index}: {device.model}{capability}{f', {reason}' if reason else ''}"


def fact_lines(device: Device, *, training: int, inference: int, others: int) -> tuple[str, str, str]:
    """The device's memory, its measurements, and how many tasks of each purpose it runs."""
    warm = "not reported" if device.temperature_celsius is None else f"{device.temperature_celsius} °C"
    power = "not reported" if device.power_watts is None else f"{device.power_watts} W"
    measured = f"temperature {warm}, power {power}, utilization {device.utilization:.0%}"
    tasks = [f"{training} training", f"{inference} inference", *([f"{others} that do not say"] if others else [])]
    return _memory(device), measured, f"tasks: {', '.join(tasks)}"


def _memory(device: Device) -> str:
    free = max(0, device.memory_mib - device.reserved_mib - device.used_mib)
    total = max(1, device.memory_mib)
    parts = [f"{name} {mib} MiB ({mib / total:.1%})" for name, mib in (("used", device.used_mib), ("free", free))]
    return f"memory {device.memory_mib} MiB: {', '.join(parts)}"
