"""The memory guard."""

from dovetail.sdk import GPUMemoryGuard

__all__ = ["GPUMemoryGuard"]
