"""How dense the code is: homes of a fact, types of an answer, files of a field, modules of a journey and of a start.

`python -m tools.measure.densities` prints each density; `tests/style/densities.toml` has their budgets. `--totals`
lists instead how large each package is, which has no budget: a capability is to be justified, not to be capped.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from dovetail.api.gpujob import GPUJobSpec
from tools.measure import families, modules
from tools.measure.modules import ROOT

# Each program with the module that it starts.
PROGRAMS: Final = {
    "dovetail-operator": "dovetail_operator.main",
    "dovetail-gateway": "dovetail_gateway.main",
    "dovetail-extender": "dovetail_extender.main",
    "dovetail-agent": "dovetail_agent.main",
    "dovetail-webhook": "dovetail_webhook.main",
    "dovetail-certificates": "dovetail_certificates.main",
    "dovetail-local-node": "dovetail_local_node.main",
    "gbatch": "dovetail_cli.app",
    "import dovetail.sdk": "dovetail.sdk",
}
# Packages whose data classes are answers, or what carries them.
_ANSWERS: Final = ("core/dovetail/answers/", "core/dovetail/sdk/", "gateway/")


def homes_of_a_fact() -> int:
    """The number of families of data classes that share most of their fields."""
    return len(_families())


def types_of_an_answer() -> int:
    """The size of the largest such family that has a class of an answer."""
    sizes = (len(each) for each in _families() if any(member.module.startswith(_ANSWERS) for member in each))
    return max(sizes, default=1)


@cache
def _families() -> list[list[families.DataClass]]:
    return families.families(families.data_classes())


def files_of_a_field() -> Mapping[str, int]:
    """How many modules name each field of a GPUJob's spec, if its name has two words or more.

    A name of one word, such as `gpu`, means other things too.
    """
    texts = modules.sources().values()
    found = {}
    for field in msgspec.structs.fields(GPUJobSpec):
        if "_" in field.name:
            word = re.compile(rf"\b(?:{field.name}|{field.encode_name})\b")
            found[field.name] = sum(word.search(text) is not None for text in texts)
    return found


def modules_of_a_journey() -> Mapping[str, int]:
    """How many modules each journey passes. Runs their tests in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journeys.json"
        command = [sys.executable, "-m", "tools.measure.journeys", "--json", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the journeys cannot be counted: {done.stdout}{done.stderr}")
        counted: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
        return counted


def importers_of_one() -> int:
    """The number of short modules that one module of their package alone imports, without a reason for it."""
    return len(modules.thin(modules.sources()))


def modules_of_a_start() -> Mapping[str, int]:
    """How many of the product's modules are loaded once a program has imported its main module."""
    return {program: _loaded(module) for program, module in PROGRAMS.items()}


def _loaded(module: str) -> int:
    code = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return sum(name in modules.sources() for name in done.stdout.split())


def totals() -> Mapping[str, tuple[int, int]]:
    """The modules and lines of each package of a part, such as `dovetail.queue`."""
    count: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, text in modules.sources().items():
        package = ".".join(name.split(".")[:2])
        count[package] += 1
        lines[package] += len(text.splitlines())
    return {package: (count[package], lines[package]) for package in sorted(count)}


def densities() -> Mapping[str, int | Mapping[str, int]]:
    """All of them, by the names of their budgets."""
    return {
        "homes_of_a_fact": homes_of_a_fact(),
        "types_of_an_answer": types_of_an_answer(),
        "files_of_a_field": files_of_a_field(),
        "modules_of_a_journey": modules_of_a_journey(),
        "importers_of_one": importers_of_one(),
        "modules_of_a_start": modules_of_a_start(),
    }


def _rows(found: Mapping[str, int | Mapping[str, int]]) -> Iterable[tuple[str, int]]:
    for name, value in found.items():
        if isinstance(value, int):
            yield name, value
        else:
            yield from ((f"{name}: {each}", number) for each, number in value.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the densities, or the totals."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--totals", action="store_true", help="the modules and lines of each package instead")
    args = options.parse_args(arguments)
    if args.totals:
        for package, (count, lines) in totals().items():
            print(f"{count:5} modules {lines:7} lines  {package}")
        return
    for name, number in _rows(densities()):
        print(f"{number:5} {name}")


if __name__ == "__main__":
    main()
