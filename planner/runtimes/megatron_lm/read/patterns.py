"""Small languages inside values: lists of layers, pairs of numbers. Nothing is evaluated.

Source: Megatron-LM `megatron/training/arguments.py`, `_eval_pattern` and `tuple_type`, which hand
lists such as `([0]*3+[1]*58)*2` to Python.
"""

import ast
import re

LONGEST = 1 << 16
"""Entries of a list; no model has so many layers."""


def pattern(text: str) -> int | tuple[int, ...]:
    """A whole number, or a list of some.

    Raises:
        ValueError: It is neither, or too long.
    """
    if "[" not in text:
        return int(text)
    if re.search(r"[^,\d\[\]()+*]", text) or len(text) > LONGEST:
        raise ValueError("only digits and , [ ] ( ) + * make a list of layers")
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("no list") from error
    if isinstance(value, int):
        raise ValueError("no list")
    return value


def _value(node: ast.expr) -> int | tuple[int, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.List):
        entries = [_value(entry) for entry in node.elts]
        if all(isinstance(entry, int) for entry in entries):
            return tuple(entry for entry in entries if isinstance(entry, int))
    if isinstance(node, ast.BinOp):
        return _joined(_value(node.left), node.op, _value(node.right))
    raise ValueError("no list of whole numbers")


def _joined(
    left: int | tuple[int, ...], way: ast.operator, right: int | tuple[int, ...]
) -> int | tuple[int, ...]:
    if isinstance(way, ast.Add):
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if isinstance(left, tuple) and isinstance(right, tuple) and len(left + right) <= LONGEST:
            return left + right
    elif isinstance(way, ast.Mult):
        some, times = (left, right) if isinstance(left, tuple) else (right, left)
        if isinstance(some, int) and isinstance(times, int):
            return some * times
        if isinstance(some, tuple) and isinstance(times, int) and len(some) * times <= LONGEST:
            return some * times
    raise ValueError("no list of whole numbers")


def integers(text: str) -> tuple[int, ...]:
    """`4095,0` or `(4095,0)`.

    Raises:
        ValueError: It is none.
    """
    return tuple(int(part) for part in text.strip("()").split(","))
