"""Whole-number expressions of the shell.

Source: GNU Bash manual 5.2, section 6.5.
"""

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(\d+)|(\*\*|&&|\|\||<=|>=|==|!=|[-+*/%<>!()]))")
_POWER_LIMIT = 64
_LARGEST = 2**63 - 1


def _quotient(a: int, b: int) -> int:
    """Towards zero, as in C."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if not 0 <= b < _POWER_LIMIT:
        raise ValueError("an exponent out of range")
    return int(a**b)


_Operation = Callable[[int, int], int]
_BINARY: dict[str, tuple[int, _Operation]] = {
    "||": (1, lambda a, b: int(bool(a or b))),
    "&&": (2, lambda a, b: int(bool(a and b))),
    "==": (3, lambda a, b: int(a == b)),
    "!=": (3, lambda a, b: int(a != b)),
    "<": (4, lambda a, b: int(a < b)),
    ">": (4, lambda a, b: int(a > b)),
    "<=": (4, lambda a, b: int(a <= b)),
    ">=": (4, lambda a, b: int(a >= b)),
    "+": (5, lambda a, b: a + b),
    "-": (5, lambda a, b: a - b),
    "*": (6, lambda a, b: a * b),
    "/": (6, _quotient),
    "%": (6, lambda a, b: a - _quotient(a, b) * b),
    "**": (7, _power),
}
_UNARY = {"-": "minus", "+": "plus", "!": "not"}
_UNARY_RANK = 8


def evaluated(text: str) -> int | None:
    """Value of an expression of numbers alone; null where it is none that is known here."""
    values: list[int] = []
    waiting: list[str] = []
    at, text, operand = 0, text.rstrip(), False
    try:
        while at < len(text):
            match = _TOKEN.match(text, at)
            if not match:
                return None
            at = match.end()
            number, operator = match.groups()
            begins = bool(number) or operator in ("(", "!")
            if begins == operand and not (not operand and operator in _UNARY):
                return None
            if number:
                values.append(_bounded(int(number, 8 if number[0] == "0" else 10)))
                operand = True
            elif operator == "(":
                waiting.append(operator)
            elif not operand:
                waiting.append(_UNARY[operator])
            else:
                operand = _reduce(operator, values, waiting)
        waiting.insert(0, "(")
        _reduce(")", values, waiting)
    except (ValueError, ZeroDivisionError, KeyError, IndexError):
        return None
    return values[0] if len(values) == 1 and not waiting else None


def _reduce(operator: str, values: list[int], waiting: list[str]) -> bool:
    """Do what binds tighter than an operator, then keep it; is an operand complete?"""
    rank = 0 if operator == ")" else _BINARY[operator][0]
    while waiting and waiting[-1] != "(":
        top = waiting[-1]
        known = _UNARY_RANK if top in _UNARY.values() else _BINARY[top][0]
        if known < rank or (operator == "**" and top == "**"):
            break
        waiting.pop()
        right = values.pop()
        if top in _UNARY.values():
            values.append({"minus": -right, "plus": right, "not": int(not right)}[top])
        else:
            values.append(_bounded(_BINARY[top][1](values.pop(), right)))
    if operator != ")":
        waiting.append(operator)
        return False
    waiting.pop()
    return True


def _bounded(value: int) -> int:
    if abs(value) > _LARGEST:
        raise ValueError("beyond the shell's whole numbers")
    return value
