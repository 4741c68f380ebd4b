"""gbatch's options about the worker's pod: variables, volumes and nodes."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dovetail_cli.submit import pod_options
from dovetail_cli.submit.pod_options import Volume
from dovetail_cli.ui.errors import UsageError


def test_variables_keep_what_follows_the_first_equals_sign() -> None:
    assert pod_options.variables(["A=1", "B=x=y", "C=", "A=2"]) == {"A": "2", "B": "x=y", "C": ""}


def test_a_volume_is_a_claim_at_a_path() -> None:
    assert pod_options.volumes(["data:/data", "out:/srv/out/:ro", "tmp:/tmp:rw"]) == (
        Volume(claim="data", path="/data"),
        Volume(claim="out", path="/srv/out", read_only=True),
        Volume(claim="tmp", path="/tmp"),
    )
    assert str(Volume(claim="out", path="/out", read_only=True)) == "out:/out:ro"


def test_labels_of_nodes_may_be_several_in_one_word() -> None:
    assert pod_options.node_labels(["disk=nvme,example.org/zone=b", "spot="]) == {
        "disk": "nvme",
        "example.org/zone": "b",
        "spot": "",
    }


@pytest.mark.parametrize(
    ("read", "texts", "problem"),
    [
        (pod_options.variables, ["LR"], '--env "LR": write NAME=VALUE, such as --env LR=0.1'),
        (pod_options.variables, ["1A=2"], '--env "1A=2": write NAME=VALUE'),
        (pod_options.variables, ["CUDA_VISIBLE_DEVICES=0"], "Dovetail sets CUDA_VISIBLE_DEVICES itself"),
        (pod_options.volumes, ["data"], '--volume "data": write the name of a PersistentVolumeClaim'),
        (pod_options.volumes, ["data:data"], "such as --volume data:/data"),
        (pod_options.volumes, ["/host:/data"], '--volume "/host:/data"'),
        (pod_options.volumes, ["data:/"], '--volume "data:/"'),
        (pod_options.volumes, ["data:/data:rx"], "or data:/data:ro to read only"),
        (pod_options.volumes, ["a:/data", "b:/data/"], '--volume "b:/data/": two volumes cannot be at /data'),
        (pod_options.node_labels, ["disk"], '--node-selector "disk": write LABEL=VALUE'),
        (pod_options.node_labels, ["disk=a b"], "such as --node-selector disk=nvme"),
        (pod_options.node_labels, ["disk=a", "disk=b"], "no node has two values of disk; disk=a is given"),
    ],
)
def test_a_wrong_value_is_named_with_its_option_and_an_example(
    read: Callable[[Sequence[str]], Any], texts: list[str], problem: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read(texts)
    assert problem in str(refused.value)
