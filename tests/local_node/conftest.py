"""An API server that answers what a test tells it to."""

from tests.core.kube.conftest import api

__all__ = ["api"]
