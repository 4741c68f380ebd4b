"""Runs a block of Python as a job's program, with the names that the guide takes for granted: run_block.py FILE."""

import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "frameworks"))
torch: Any = import_module("torch")


def _trained(what: object) -> None:
    print("world:", torch.distributed.world_size, what)


class _Fits:
    def compile(self, *_: object) -> None: ...
    def fit(self, *_: object) -> None: ...


GIVEN = {"MyModel": torch.nn.Module, "train": _trained, "create_model": _Fits, "model": _Fits()}
runpy.run_path(sys.argv[1], init_globals=GIVEN, run_name="__main__")
