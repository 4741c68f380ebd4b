"""The parser of request texts."""

from dovetail.sdk import GPUResourceParser

__all__ = ["GPUResourceParser"]
