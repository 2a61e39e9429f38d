"""The changes of a module that would alter its behaviour, each of one expression or statement."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass


def _both_ways(*pairs: tuple[type, type]) -> dict[type, type]:
    return {**dict(pairs), **{second: first for first, second in pairs}}


_FLIPPED = _both_ways(
    (ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)
)
_MOVED = _both_ways((ast.Lt, ast.LtE), (ast.Gt, ast.GtE))
_SIGNS = _both_ways((ast.Add, ast.Sub), (ast.Mult, ast.Div))
# Calls that only word a sentence, and calls in which a changed argument makes no difference to behaviour.
_MESSAGES = frozenset({"sentence", "Message", "Activity", "say", "note", "status", "warn", "cast", "round", "field"})
_SYMMETRIC = frozenset({"isinstance", "min", "max"})
_UNCHANGED_FIELDS = frozenset({"annotation", "returns", "exc", "decorator_list"})


@dataclass(frozen=True)
class Mutant:
    """A change of the node with this ``number``, in the order of ``ast.walk``, to ``after``."""

    path: str
    line: int
    number: int
    kind: str
    before: str
    after: ast.expr | ast.stmt

    def applied(self, source: str) -> str:
        return _rewritten(source, lambda number, node: self.after if number == self.number else node)

    def __str__(self) -> str:
        after = ast.unparse(self.after)
        return f"{self.path}:{self.line} {self.kind}: {_line(self.before)} -> {_line(after)}"


def changes_of(path: str, source: str) -> Iterator[Mutant]:
    """All changes inside the functions of a module, apart from those of messages, types and docstrings."""
    tree = ast.parse(source)
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            is_bool = function.returns is not None and ast.unparse(function.returns) == "bool"
            for node in _places(function.body):
                changed = _changed_expressions(node)
                if isinstance(node, ast.stmt):
                    changed = _changed_statements(node, is_bool=is_bool)
                for kind, after in changed:
                    yield Mutant(path, node.lineno, numbers[node], kind, ast.unparse(node), after)


def probed(source: str, mutants: Mapping[int, Mutant], call: str) -> str:
    """The source with a call of ``call``, with the key of the mutant, wherever one of the mutants is reached."""
    keys = {mutant.number: key for key, mutant in mutants.items()}

    def with_probe(number: int, node: ast.AST) -> ast.AST | list[ast.AST]:
        if number not in keys:
            return node
        probe = ast.parse(f"{call}({keys[number]})", mode="eval").body
        if isinstance(node, ast.stmt):
            return [ast.Expr(probe), node]
        both = ast.Tuple([probe, node], ast.Load())
        return ast.Subscript(both, ast.Constant(1), ast.Load())

    return _rewritten(source, with_probe)


def _rewritten(source: str, replace: Callable[[int, ast.AST], ast.AST | list[ast.AST]]) -> str:
    tree = ast.parse(source)
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}

    class Rewriter(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
            return replace(numbers[node], self.generic_visit(node))

    return ast.unparse(ast.fix_missing_locations(Rewriter().visit(tree)))


def _places(nodes: list[ast.stmt] | list[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        is_message = isinstance(node, ast.Call) and _words_a_message(node)
        if is_message or isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.Assert | ast.pattern):
            continue
        if isinstance(node, ast.stmt | ast.expr):
            yield node
        for name, value in ast.iter_fields(node):
            if name not in _UNCHANGED_FIELDS:
                children = value if isinstance(value, list) else [value]
                yield from _places([child for child in children if isinstance(child, ast.AST)])


def _changed_statements(node: ast.stmt, *, is_bool: bool) -> Iterator[tuple[str, ast.stmt]]:
    """What a statement could become. ``is_bool``: its function returns a bool."""
    match node:
        case ast.Expr(ast.Call()) if not _words_a_message(node.value):
            yield "statement dropped", ast.Pass()
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield "statement dropped", ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "statement dropped", ast.Pass()
        case ast.Return(ast.expr() as value):
            if is_bool:
                yield "return negated", ast.Return(ast.UnaryOp(ast.Not(), value))
            elif not isinstance(value, ast.Constant):
                yield "return replaced", ast.Return(ast.Constant(None))
        case ast.If() | ast.While():
            yield "condition negated", _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def _changed_expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.IfExp():
            yield "condition negated", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Compare(ops=[operator, *others]):
            yield "comparison flipped", _with(node, ops=[_FLIPPED[type(operator)](), *others])
            if type(operator) in _MOVED:
                yield "boundary moved", _with(node, ops=[_MOVED[type(operator)](), *others])
        case ast.BoolOp():
            opposite = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or swapped", _with(node, op=opposite)
        case ast.UnaryOp(ast.USub()):
            yield "sign changed", node.operand
        case ast.BinOp() if type(node.op) in _SIGNS:
            yield "sign changed", _with(node, op=_SIGNS[type(node.op)]())
        case ast.Constant(bool() | int() | float() as value):
            after = not value if isinstance(value, bool) else value + 1
            yield "constant changed", ast.Constant(after)
        case ast.Call(args=[first, second, *others]) if _name(node) not in _SYMMETRIC:
            if type(first) is type(second) and ast.unparse(first) != ast.unparse(second):
                yield "arguments swapped", _with(node, args=[second, first, *others])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    copy = deepcopy(node)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _words_a_message(call: ast.Call) -> bool:
    return _name(call) in _MESSAGES or _name(call).endswith("Error")


def _line(code: str) -> str:
    first, *rest = code.splitlines()
    return first[:100] + (" …" if rest or len(first) > 100 else "")
