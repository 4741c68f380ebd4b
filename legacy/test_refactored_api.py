"""The client of REST v2 under its old name. Not a test: the module has always been called so."""

from dovetail.sdk import TaskClient as RFUAVClient

__all__ = ["RFUAVClient"]
