"""Kubelet's messages as they were generated are those of the `.proto` files."""

from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

from dovetail_agent.kubelet import v1
from dovetail_agent.kubelet.v1 import csi_pb2, pluginregistration_pb2, podresources_pb2

MODULES = {"csi": csi_pb2, "pluginregistration": pluginregistration_pb2, "podresources": podresources_pb2}


def test_every_proto_file_is_looked_at() -> None:
    assert {path.stem for path in Path(v1.__file__).parent.glob("*.proto")} == MODULES.keys()


@pytest.mark.parametrize(("name", "module"), MODULES.items())
def test_the_generated_messages_are_those_of_the_proto_file(name: str, module: ModuleType, tmp_path: Path) -> None:
    folder, made = Path(v1.__file__).parent, tmp_path / "set"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={made}", f"{name}.proto"]) == 0
    (described,) = FileDescriptorSet.FromString(made.read_bytes()).file
    described.ClearField("source_code_info")
    generated = type(described).FromString(module.DESCRIPTOR.serialized_pb)
    assert without_json_names(generated) == without_json_names(described)


def without_json_names(file: "FileDescriptorSet.file") -> str:  # type: ignore[name-defined]
    """protoc names fields for JSON in the one and not in the other, those of a map's entries too."""
    for message in file.message_type:
        for field in [*message.field, *(field for nested in message.nested_type for field in nested.field)]:
            field.ClearField("json_name")
    return str(file)
