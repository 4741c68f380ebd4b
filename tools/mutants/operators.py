"""The mutations that are tried: cosmic-ray's that resemble a real mistake, and those that it lacks.

Replacements that every test finds, such as ``+`` by ``@``, are left out: they only improve the figure.
"""

from collections.abc import Iterator, Mapping, Sequence

import parso
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import IfStmt, Keyword, Name, PythonNode
from parso.python.tree import Operator as Sign
from parso.tree import BaseNode, NodeOrLeaf

Span = tuple[tuple[int, int], tuple[int, int]]

# Of cosmic-ray's operators: boundaries, signs, connectives, constants, loops and handlers.
_FROM_COSMIC_RAY = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_FloorDiv",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Invert",
    "AddNot",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ExceptionReplacer",
    "ZeroIterationForLoop",
)

_OPPOSITES = {"min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all"}
_OPPOSITE = _OPPOSITES | {new: old for old, new in _OPPOSITES.items()}
_OPPOSITE_ASSIGNMENT = {"+=": "-=", "-=": "+=", "|=": "&=", "&=": "|="}
_KEYED_CALLS = frozenset({"get", "setdefault", "pop", "add", "discard", "remove"})


def _span(node: NodeOrLeaf) -> Span:
    return node.start_pos, node.end_pos


class SwapExtreme(Operator):  # type: ignore[misc] # untyped
    """A minimum becomes a maximum, ``any`` becomes ``all``, and the other way round."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if isinstance(node, Name) and node.value in _OPPOSITE and not node.is_definition():
            following = node.get_next_leaf()
            if following is not None and following.value == "(":
                yield _span(node)

    def mutate(self, node: Name, index: int) -> Name:
        node.value = _OPPOSITE[node.value]
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("min(a)", "max(a)"), Example("mask.any()", "mask.all()"))


class SkipIf(Operator):  # type: ignore[misc] # untyped
    """An ``if`` without ``else`` never holds: the guard is gone."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if isinstance(node, IfStmt) and len(node.children) == 4:
            yield _span(node.children[1])

    def mutate(self, node: IfStmt, index: int) -> IfStmt:
        node.children[1] = parso.parse(" False")
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("if a:\n    return\n", "if False:\n    return\n"),)


class KeepAll(Operator):  # type: ignore[misc] # untyped
    """The condition of a comprehension holds for every element."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if node.type == "comp_if":
            yield _span(node.children[1])

    def mutate(self, node: BaseNode, index: int) -> BaseNode:
        node.children[1] = parso.parse(" True")
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("[a for a in b if a]", "[a for a in b if True]"),)


class SwapMembership(Operator):  # type: ignore[misc] # untyped
    """``in`` becomes ``not in``, and the other way round."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if node.type == "comparison":
            for each in node.children[1::2]:
                if each.get_code().split() in (["in"], ["not", "in"]):
                    yield _span(each)

    def mutate(self, node: BaseNode, index: int) -> BaseNode:
        places = [
            at for at, each in enumerate(node.children) if each.get_code().split() in (["in"], ["not", "in"]) and at % 2
        ]
        old = node.children[places[index]].get_code().split()
        node.children[places[index]] = parso.parse(" not in" if old == ["in"] else " in")
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("a in b", "a not in b"), Example("a not in b", "a in b"))


class SwapAugmented(Operator):  # type: ignore[misc] # untyped
    """What was added is taken away."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if isinstance(node, Sign) and node.value in _OPPOSITE_ASSIGNMENT:
            yield _span(node)

    def mutate(self, node: Sign, index: int) -> Sign:
        node.value = _OPPOSITE_ASSIGNMENT[node.value]
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("a += 1", "a -= 1"),)


class SkipCall(Operator):  # type: ignore[misc] # untyped
    """A call whose result is not used does not happen."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if node.type == "simple_stmt" and _is_call(node.children[0]):
            yield _span(node.children[0])

    def mutate(self, node: BaseNode, index: int) -> BaseNode:
        called = node.children[0]
        lines = called.end_pos[0] - called.start_pos[0]
        # The lines that follow keep their numbers.
        node.children[0] = parso.parse(called.get_first_leaf().prefix + "pass" + " \\\n" * lines)
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("a.b()\n", "pass\n"),)


class CoarseKey(Operator):  # type: ignore[misc] # untyped
    """A key of several parts no longer tells one of its parts apart."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Span]:
        if _is_key(node):
            for part in node.children[::2]:
                yield _span(part)

    def mutate(self, node: BaseNode, index: int) -> BaseNode:
        part = node.children[index * 2]
        node.children[index * 2] = parso.parse(part.get_first_leaf().prefix + "None")
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("key = (a, b)", "key = (None, b)"), Example("a[b, c]", "a[None, c]"))


def _is_call(node: NodeOrLeaf) -> bool:
    if isinstance(node, PythonNode) and node.type == "atom_expr" and isinstance(node.children[0], Keyword):
        node = node.children[-1] if node.children[-1].type == "trailer" else node  # await f()
    else:
        node = node.children[-1] if node.type in ("atom_expr", "power") else node
    return node.type == "trailer" and bool(node.children[0].value == "(")


def _is_key(node: NodeOrLeaf) -> bool:
    """Whether a tuple is what something is looked up or sorted by."""
    if node.type == "subscriptlist":
        # An array's axes are no key.
        return all(part.type in ("name", "atom_expr", "string") for part in node.children[::2])
    if node.type != "testlist_comp" or any(part.type.endswith("comp_for") for part in node.children):
        return False
    atom = node.parent
    if atom.children[0].value != "(":
        return False
    around = atom.parent
    if around.type == "lambdef":
        return True
    if around.type == "expr_stmt":
        return "key" in around.children[0].get_code()
    if around.type == "trailer" and around.children[0].value in "([":
        called = around.get_previous_leaf()
        return around.children[0].value == "[" or (called is not None and called.value in _KEYED_CALLS)
    return False


OURS = (SwapExtreme, SkipIf, KeepAll, SwapMembership, SwapAugmented, SkipCall, CoarseKey)


def operators() -> Mapping[str, Operator]:
    """Every operator by its name."""
    theirs = OperatorProvider()
    return {name: theirs[name]() for name in _FROM_COSMIC_RAY} | {each.__name__: each() for each in OURS}
