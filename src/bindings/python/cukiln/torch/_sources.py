# SPDX-License-Identifier: Apache-2.0
"""Whether a model's own code computes with the weight of a layer, as its classes' sources say."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from torch import nn

_KNOWS = ("uint8", "_is_quantized")
_ASKS = {"isinstance", "hasattr", "getattr"}
_OF_SHAPE = {"size", "dim", "numel", "element_size", "data_ptr", "is_floating_point"}


def reader_of_weight(model: nn.Module, path: str) -> str | None:
    """The class whose code computes with the weight of the layer at `path`, or casts to its dtype,
    and knows no quantised weights; None if no code of its parents does."""
    parts = path.split(".")
    for depth in range(len(parts)):
        kind: Any = type(model.get_submodule(".".join(parts[:depth])))
        for root, names in _weights_read(kind):
            below = parts[depth:]
            if names == below if root == "self" else names == below[-len(names) :]:
                return str(kind.__name__)
    return None


@functools.cache
def _weights_read(kind: type) -> list[tuple[str, list[str]]]:
    """The layers whose weights a class reads: a variable, and the names from there."""
    if kind.__module__.startswith("torch.nn."):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return []
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or "init" in function.name:
            continue
        if any(word in ast.unparse(function) for word in _KNOWS):
            continue
        for node, above in _outside_of_training(function, ()):
            if isinstance(node, ast.Attribute) and node.attr == "weight":
                root, names = _chain(node.value)
                if names and _is_computed_with(above):
                    found.append((root, names))
    return found


def _outside_of_training(
    node: ast.AST, above: tuple[ast.AST, ...]
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Every node with those above it, the nearest first."""
    yield node, above
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and "self.training" in ast.unparse(node.test).split(" and "):
        children = list(node.orelse)
    for child in children:
        yield from _outside_of_training(child, (node, *above))


def _chain(node: ast.AST) -> tuple[str, list[str]]:
    """Of a.b.c the variable a, and b and c."""
    if isinstance(node, ast.Name):
        return node.id, []
    if not isinstance(node, ast.Attribute):
        return "", []
    root, names = _chain(node.value)
    return root, [*names, node.attr] if root else []


def _is_computed_with(above: tuple[ast.AST, ...]) -> bool:
    parent, beyond = above[:2]
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.MatMult)
    if isinstance(parent, ast.Call):
        return ast.unparse(parent.func) not in _ASKS
    if not isinstance(parent, ast.Attribute) or not isinstance(beyond, ast.Call | ast.keyword):
        return False
    if parent.attr == "dtype":
        call = beyond if isinstance(beyond, ast.Call) else above[2]
        return isinstance(call, ast.Call) and ast.unparse(call.func).endswith((".to", ".type"))
    return isinstance(beyond, ast.Call) and beyond.func is parent and parent.attr not in _OF_SHAPE
