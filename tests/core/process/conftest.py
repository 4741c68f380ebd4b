from tests.core.kube.conftest import api, client

__all__ = ["api", "client"]
