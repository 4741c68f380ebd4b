"""Every mutant of a module, found without running anything."""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator

from tools.mutants.operators import operators

MODULE_LEVEL = "<module>"
_GENERICS = frozenset({"dict", "list", "set", "frozenset", "tuple", "Callable", "Mapping", "Sequence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one module.

    module: dotted name.
    path: its file.
    function: qualified name of the outermost function that contains the change, or ``<module>``.
    line: line number, from 1.
    operator: name of the mutation.
    occurrence: which of the operator's places in the module, from 0.
    """

    module: str
    path: Path
    function: str
    line: int
    operator: str
    occurrence: int

    @property
    def functions(self) -> frozenset[str]:
        """The functions that differ: one."""
        return frozenset({self.function})

    @property
    def source(self) -> str:
        """The mutated module. Raises SyntaxError when the operator's result is none."""
        return _mutated(self.path.read_text(), self.operator, self.occurrence)

    @property
    def is_program(self) -> bool:
        """Whether the mutated module parses: `not` before `x := …` does not, for example."""
        try:
            return bool(self.source)
        except SyntaxError:
            return False

    @property
    def change(self) -> str:
        """The first line that differs: before, and after."""
        lines = zip(self.path.read_text().split("\n"), self.source.split("\n"), strict=False)
        return next((f"{old.strip()}  ->  {new.strip()}" for old, new in lines if old != new), "")

    @property
    def identity(self) -> str:
        """Stays the same when other lines of the file move."""
        return hashlib.sha256(f"{self.module} {self.function} {self.operator} {self.change}".encode()).hexdigest()[:10]


@lru_cache(maxsize=1024)  # a parse of the module for each: 0.1 s
def _mutated(source: str, operator: str, occurrence: int) -> str:
    code = mutate_code(source, operators()[operator], occurrence)
    assert code is not None, "the occurrence was counted over the same source"
    ast.parse(code)
    return str(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A part of a file that belongs to one function, or that is not mutated at all."""

    start: tuple[int, int]
    end: tuple[int, int]
    name: str


def modules_of(package: str) -> Sequence[tuple[str, Path]]:
    """The modules of a package, or the one module of that name. Raises ValueError for a name that is neither."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"{package} is not a package or module")
    if spec.submodule_search_locations is None:
        return [(package, Path(spec.origin))]
    root = Path(spec.origin).parent
    found = sorted(root.rglob("*.py"))
    return [(_dotted(package, path=path.relative_to(root)), path) for path in found if not path.stem.endswith("_pb2")]


def _dotted(package: str, *, path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def mutants_of(module: str, *, path: Path) -> Sequence[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    source = path.read_text()
    tree = get_ast(source)
    nodes = list(ast_nodes(tree))
    parsed = ast.parse(source)
    functions = list(_functions(parsed))
    excluded = list(_excluded(parsed))
    found = [
        Mutant(
            module=module,
            path=path,
            function=next((each.name for each in functions if each.start <= at < each.end), MODULE_LEVEL),
            line=at[0],
            operator=name,
            occurrence=occurrence,
        )
        for name, operator in operators().items()
        for occurrence, at in enumerate(_positions(nodes, operator=operator))
        if not any(each.start <= at < each.end for each in excluded)
    ]
    return sorted(found, key=lambda each: (each.line, each.operator, each.occurrence))


def _positions(nodes: Sequence[object], *, operator: Operator) -> Iterator[tuple[int, int]]:
    return (start for node in nodes for start, _ in operator.mutation_positions(node))


def _place(node: ast.AST, *, name: str) -> _Place:
    return _Place(
        start=(getattr(node, "lineno"), getattr(node, "col_offset")),  # noqa: B009
        end=(getattr(node, "end_lineno"), getattr(node, "end_col_offset")),  # noqa: B009
        name=name,
    )


def _functions(tree: ast.AST, *, within: str = "") -> Iterator[_Place]:
    """The bodies of the outermost functions: defaults and annotations belong to what surrounds them."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                first, last = _place(node.body[0], name=""), _place(node.body[-1], name="")
                yield _Place(start=first.start, end=last.end, name=within + node.name)
            case ast.ClassDef():
                yield from _functions(node, within=f"{within}{node.name}.")
            case _:
                yield from _functions(node, within=within)


def _excluded(tree: ast.AST) -> Iterator[_Place]:
    """What has no behaviour, such as annotations, decorators and type aliases, and numbers that are settings.

    A test of a setting's default would only repeat the number.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id="Literal")) | ast.keyword(arg="strict" | "repr"):
                yield _place(node, name="")
            case ast.Module(body=statements) | ast.ClassDef(body=statements):
                yield from (_place(value, name="") for value in _settings(statements))
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from (_place(each, name="") for each in node.decorator_list)
                yield from _signature(node)
            case ast.ClassDef():
                yield from (_place(each, name="") for each in [*node.decorator_list, *node.keywords])
            case ast.AnnAssign(annotation=annotation):
                yield _place(annotation, name="")
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType" | "ParamSpec")):
                yield from (_place(each, name="") for each in node.args[:1])
            case ast.Assign(value=ast.BinOp(op=ast.BitOr()) | ast.Subscript() as alias) if _is_alias(alias):
                yield _place(alias, name="")


def _settings(statements: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    for each in statements:
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None and _is_number(each.value):
            yield each.value


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Place]:
    """The head of a function but for the defaults of its parameters."""
    start = (function.lineno, function.col_offset)
    defaults = [each for each in (*function.args.defaults, *function.args.kw_defaults) if each and not _is_number(each)]
    for each in sorted(map(partial(_place, name=""), defaults), key=lambda each: each.start):
        yield _Place(start=start, end=each.start, name="")
        start = each.end
    yield _Place(start=start, end=_place(function.body[0], name="").start, name="")


def _is_alias(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id in _GENERICS
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    return all(name[0].isupper() or name in ("int", "str", "float", "bool", "list", "dict") for name in names)
