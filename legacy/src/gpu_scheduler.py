"""The scheduler."""

from dovetail.sdk import GPUScheduler, SchedulingPolicy, SchedulingRequest

__all__ = ["GPUScheduler", "SchedulingPolicy", "SchedulingRequest"]
