"""An import of the SDK loads only what it needs, whatever else is installed."""

import json
import subprocess
import sys

import pytest

import dovetail.sdk

HEAVY = {"aiohttp", "httpx2", "numpy", "pydantic", "yaml", "torch", "tensorflow", "kopf", "rich", "typer", "IPython"}
OURS = {"answers", "api", "decoding", "formats", "gpu", "jobs", "names", "sdk"}


def loaded_by(statement: str) -> list[str]:
    script = f"import sys; {statement}; import json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_an_import_loads_no_http_client_no_framework_and_no_other_part_of_dovetail() -> None:
    modules = loaded_by("import dovetail.sdk")
    assert not HEAVY & {name.split(".")[0] for name in modules}
    assert {name.split(".")[1] for name in modules if name.startswith("dovetail.")} <= OURS


def test_a_client_is_made_without_the_http_client() -> None:
    assert "httpx2" not in loaded_by("from dovetail.sdk import Client; Client('http://127.0.0.1:1')")


def test_an_import_of_the_package_loads_no_name_of_it() -> None:
    modules = loaded_by("import dovetail.sdk")
    assert [name for name in modules if name.startswith("dovetail")] == ["dovetail", "dovetail.sdk"]
    assert not {"asyncio", "msgspec", "ssl"} & set(modules)


@pytest.mark.parametrize("name", dovetail.sdk.__all__)
def test_each_public_name_is_there_at_its_first_use(name: str) -> None:
    assert getattr(dovetail.sdk, name).__name__ == name
    assert name in dir(dovetail.sdk)
