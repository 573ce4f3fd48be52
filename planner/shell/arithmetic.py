"""Whole-number expressions of the shell, by the syntax tree of the same text in Python.

Source: GNU Bash manual 5.2, section 6.5.
"""

import ast
import operator
import re
from collections.abc import Callable

_LONGEST = 4000
_POWER_LIMIT = 64
_LARGEST = 2**63 - 1
_READ = re.compile(r"(?:[\d\s()*/%+<>-]|&&|\|\||[!=<>]=|!)+")
_SPELLED = (("&&", " and "), (r"\|\|", " or "), (r"!(?!=)", "~"), (r"\s+", " "))
"""`!` binds as `~` does, which is not read."""


def _quotient(a: int, b: int) -> int:
    """Towards zero, as in C."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if not 0 <= b < _POWER_LIMIT:
        raise ValueError("an exponent out of range")
    return int(a**b)


_BINARY: dict[type, Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.Lt: operator.lt, ast.Gt: operator.gt, ast.LtE: operator.le, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Div: _quotient, ast.Pow: _power},
    ast.Mod: lambda a, b: a - _quotient(a, b) * b,
}
_UNARY: dict[type, Callable[[int], int]] = {
    **{ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.not_}
}


def evaluated(text: str) -> int | None:
    """Value of an expression of numbers alone; null where it is none that is known here."""
    if len(text) > _LONGEST or not _READ.fullmatch(text):
        return None
    try:
        text = re.sub(r"\b0\d+", lambda octal: str(int(octal[0], 8)), text)
        for old, new in _SPELLED:
            text = re.sub(old, new, text)
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(tree: ast.expr) -> int:
    match tree:
        case ast.Constant(value=int(value)):
            found = value
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            found = int(_BINARY[type(op)](_value(left), _value(right)))
        case ast.UnaryOp(_, ast.BinOp(_, ast.Pow(), _)):
            raise ValueError("-2**2 is 4 in bash")
        case ast.UnaryOp(op, operand):
            found = int(_UNARY[type(op)](_value(operand)))
        case ast.BoolOp(ast.And(), values):
            found = int(all(_value(value) for value in values))
        case ast.BoolOp(ast.Or(), values):
            found = int(any(_value(value) for value in values))
        case _:
            raise ValueError("not read here")
    if abs(found) > _LARGEST:
        raise ValueError("beyond the shell's whole numbers")
    return found
