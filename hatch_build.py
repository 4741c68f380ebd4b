"""Puts the built console into wheels and source distributions. Editable installs build it when it is first needed."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILD = Path(__file__).parent / "gateway" / "dovetail_gateway" / "console" / "build.py"
# For a machine that reaches no registry of npm: the package then has no console.
_WITHOUT = "DOVETAIL_WITHOUT_CONSOLE"


class ConsoleHook(BuildHookInterface):
    """Adds the console's files to the archive."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the console, unless this is an editable install. Raises `RuntimeError` if that fails."""
        if version == "editable" or os.environ.get(_WITHOUT):
            return
        spec = importlib.util.spec_from_file_location("dovetail_console_build", _BUILD)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        try:
            built = module.build()
        except module.BuildError as error:
            raise RuntimeError(f"the console cannot be built ({_WITHOUT}=1 leaves it out): {error}") from error
        place = "console/shipped" if self.target_name == "sdist" else "dovetail_gateway/console/assets"
        build_data["force_include"][str(built)] = place
