"""Puts a mutated module in the place of the real one, in a process that is thrown away afterwards."""

import gc
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

_OPTIMIZED = 0x1  # a function's code, not that of a module or a class body


Living = Mapping[tuple[str, str, int], Sequence[FunctionType]]


def living_functions() -> Living:
    """Every Python function of this process by file, qualified name and line."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found.setdefault(_place(each.__code__), []).append(each)
    return found


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def swap(*, path: Path, mutated: str, living: Living) -> bool:
    """Give the functions that have been imported their mutated code; False when that cannot be done in place.

    A constant, a default or a class body has taken effect at its import already.
    """
    old = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    new = compile(mutated, str(path), "exec", dont_inherit=True)
    changed = _changed(old, new=new)
    if changed is None:
        return False
    replaced = [(living.get(_place(before), ()), after) for before, after in changed]
    if not all(functions for functions, _ in replaced):
        return False
    pairs = [(function, after) for functions, after in replaced for function in functions]
    if any(len(function.__code__.co_freevars) != len(after.co_freevars) for function, after in pairs):
        return False
    for function, after in pairs:
        function.__code__ = after
    return True


def _changed(old: CodeType, *, new: CodeType) -> Sequence[tuple[CodeType, CodeType]] | None:
    """The outermost functions that differ, or None when what runs at the import differs too."""
    before, after = _inner(old), _inner(new)
    if _skeleton(old) != _skeleton(new) or len(before) != len(after):
        return None
    found: list[tuple[CodeType, CodeType]] = []
    for one, other in zip(before, after, strict=True):
        if one == other:
            continue
        if one.co_flags & _OPTIMIZED:
            found.append((one, other))
            continue
        within = _changed(one, new=other)
        if within is None:
            return None
        found.extend(within)
    return found


def _inner(code: CodeType) -> Sequence[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _skeleton(code: CodeType) -> tuple[object, ...]:
    constants = [(type(each), repr(each)) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, code.co_names, constants


class Mutated(MetaPathFinder):
    """Imports one module from its mutated source. It belongs first on ``sys.meta_path``, before the first import."""

    def __init__(self, module: str, *, path: Path, source: str) -> None:
        self._module = module
        self._path = path
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        package = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        loader = _Loader(fullname, path=str(self._path), source=self._source)
        return spec_from_file_location(fullname, self._path, loader=loader, submodule_search_locations=package)

    def install(self) -> None:
        if self._module in sys.modules:
            raise RuntimeError(f"{self._module} is imported already")
        sys.meta_path.insert(0, self)


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, *, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._mutated = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutated, self.path, "exec", dont_inherit=True)
