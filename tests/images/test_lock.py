"""What enters an image: what requirements.lock says of the packages that its deployable needs, and nothing else."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCE = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))
IMAGES = PYPROJECT["tool"]["dovetail"]["images"]
DEPLOYABLES = sorted(IMAGES["names"])


def lock(*arguments: str) -> "subprocess.CompletedProcess[str]":
    script = SOURCE / "images" / "lock.py"
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


def names_in(text: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9.-]*)==", text, flags=re.MULTILINE))


def installed_closure(name: str, *, extras: frozenset[str]) -> set[str]:
    """What installed packages say themselves that they need here: an account that owes nothing to the lock file."""
    found, pending = set[str](), [(name, extras)]
    seen = set[tuple[str, frozenset[str]]]()
    while pending:
        package, wanted = pending.pop()
        if (package, wanted) in seen:
            continue
        seen.add((package, wanted))
        for text in requires(package) or ():
            requirement = Requirement(text)
            environments = [{**default_environment(), "extra": extra} for extra in {"", *wanted}]
            marker = requirement.marker
            if marker is None or any(marker.evaluate(environment) for environment in environments):
                found.add(canonicalize_name(requirement.name))
                pending.append((requirement.name, frozenset(requirement.extras)))
    return found - {canonicalize_name(name)}


@pytest.mark.parametrize("image", DEPLOYABLES)
def test_an_image_gets_its_packages_with_all_that_they_need(image: str) -> None:
    done = lock(image)
    assert done.returncode == 0, done.stderr
    locked = names_in(done.stdout)
    extra = set() if image == "cli" else declared(f'extra == "{image}"')
    for package in (*IMAGES["core"], *extra):
        extras = frozenset({"binary"}) if package == "psycopg" else frozenset()
        assert installed_closure(package, extras=extras) | {package} <= locked


def declared(marker: str = "") -> set[str]:
    """What the installed package says that it needs, always or with an extra."""
    needed = [Requirement(text) for text in requires("dovetail-gpu") or ()]
    return {
        canonicalize_name(each.name)
        for each in needed
        if (str(each.marker) == marker if marker else "extra" not in str(each.marker))
    }


def test_an_installation_without_extras_has_what_the_commands_image_has() -> None:
    assert declared() == {canonicalize_name(Requirement(each).name) for each in PYPROJECT["project"]["dependencies"]}
    assert declared() >= set(IMAGES["core"])
    # Those of one program alone: what a user of the commands never needs.
    assert not names_in(lock("cli").stdout) & {
        "kopf", "sqlalchemy", "psycopg", "cryptography", "nvidia-ml-py", "grpclib", "protobuf", "oauthlib", "greenlet",
        "prometheus-client",
    }  # fmt: skip


# Of a command with an extra of its own: where that is missing, the command says the line to type.
OF_EXTRAS = ("dovetail_cli.agents.server",)


@pytest.mark.parametrize("image", DEPLOYABLES)
def test_a_deployable_imports_nothing_that_its_image_lacks(image: str) -> None:
    locked = names_in(lock(image).stdout)
    others = {
        name
        for name, distributions in packages_distributions().items()
        if not {canonicalize_name(each) for each in distributions} & (locked | {"dovetail-gpu"})
    }
    # Every module of the deployable, with the packages that its image lacks out of reach.
    script = f"""
import importlib, pkgutil, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {others!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
package = importlib.import_module("dovetail_{image}")
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if module.name not in {OF_EXTRAS!r}:
        importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("image", DEPLOYABLES)
def test_every_package_of_an_image_has_a_version_and_a_hash_of_the_lock_file(image: str) -> None:
    text = lock(image).stdout
    whole = (SOURCE / "requirements.lock").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in block, block
        assert block in whole


def test_no_tool_of_the_tests_enters_an_image() -> None:
    for image in DEPLOYABLES:
        assert not names_in(lock(image).stdout) & {"pytest", "mypy", "ruff", "hatchling", "pip", "uv"}


def test_no_image_of_a_cluster_has_the_official_client() -> None:
    # 81 MB. In a cluster the credentials are a token file and an authority (docs/decisions/0012-client-of-our-own.md).
    for image in DEPLOYABLES:
        assert "kubernetes" not in names_in(lock(image).stdout)
    assert "kubernetes" in names_in(lock("--names", "kubernetes").stdout)


def test_the_build_backend_is_locked_with_what_it_needs() -> None:
    text = lock("--names", "hatchling").stdout
    assert installed_closure("hatchling", extras=frozenset()) | {"hatchling"} <= names_in(text)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["scheduler"], "lock.py: unknown image 'scheduler': one of "),
        ([], "lock.py: unknown image '': one of "),
        (["--names", "leftpad"], "lock.py: requirements.lock does not have leftpad: run `make lock`"),
        (["--names", "=1"], "lock.py: '=1' is no requirement: a package's name comes first"),
    ],
)
def test_what_cannot_be_locked_is_refused_in_a_sentence(arguments: list[str], sentence: str) -> None:
    done = lock(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(sentence)
    assert done.stdout == ""


def test_the_lock_file_has_the_version_that_is_installed() -> None:
    (pin,) = re.findall(r"^hatchling==(\S+)", lock("--names", "hatchling").stdout, flags=re.MULTILINE)
    assert pin == distribution("hatchling").version
