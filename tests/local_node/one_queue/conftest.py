from collections.abc import Iterator

import pytest

from dovetail_cli.cluster import audit
from dovetail_sandbox import cluster
from tests.local_node.machine import Machine, empty_machine, printed


@pytest.fixture(scope="package")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, str]]:
    """A new machine, and what the first `gflowd up` printed there."""
    with empty_machine(tmp_path_factory.mktemp("machine")) as made:
        yield made, printed(made, "gflowd", "up")


@pytest.fixture(scope="package")
def machine(begun: tuple[Machine, str]) -> Machine:
    made, up = begun
    assert "Jobs run on this machine" in up
    return made


@pytest.fixture(scope="module", autouse=True)
def audited(begun: tuple[Machine, str]) -> Iterator[None]:
    """What `dovetail audit` says when the file's tests are over."""
    yield
    if cluster.get().folder.exists():
        assert audit.prove(kubeconfig=str(cluster.get().kubeconfig), context=None).items == []
