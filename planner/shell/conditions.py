"""Conditions of the shell that known variables decide: true, false, or null: only a run would tell.

Source: GNU Bash manual 5.2, sections 3.2.5.2 and 6.4.
"""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainplan.planner.shell.arithmetic import evaluated
from trainplan.planner.shell.variables import Piece, Value, names_of, text_of

Verdict = bool | None

_ORDERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


@dataclass(frozen=True, slots=True)
class Operand:
    """One word of a condition."""

    value: Value
    pattern: Value | None = None
    """As a pattern, between `[[` and `]]`."""

    @property
    def text(self) -> str:
        """Its text."""
        return text_of(self.value)


def both(a: Verdict, b: Verdict) -> Verdict:
    """`a && b`."""
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def negated(a: Verdict) -> Verdict:
    """`! a`."""
    return None if a is None else not a


def either(a: Verdict, b: Verdict) -> Verdict:
    """`a || b`."""
    return negated(both(negated(a), negated(b)))


def verdict(operands: Sequence[Operand]) -> Verdict:
    """Of what stands between the brackets."""
    if any(operand.text in ("(", ")") for operand in operands):
        return None
    result: Verdict = False
    for alternative in _cut(operands, ("||", "-o")):
        whole: Verdict = True
        for primary in _cut(alternative, ("&&", "-a")):
            whole = both(whole, _primary(primary))
        result = either(result, whole)
    return result


def matches(subject: Value, pattern: Value) -> Verdict:
    """Does a pattern of `case` match? A lone star matches whatever a run would tell."""
    subject = _on_first(subject)
    if text_of(pattern) == "*":
        return True
    if names_of(subject) or names_of(pattern):
        return None
    return fnmatch.fnmatchcase(text_of(subject), text_of(pattern))


def _cut(operands: Sequence[Operand], at: tuple[str, ...]) -> Iterable[Sequence[Operand]]:
    start = 0
    for position, operand in enumerate(operands):
        if operand.text in at:
            yield operands[start:position]
            start = position + 1
    yield operands[start:]


def _primary(operands: Sequence[Operand]) -> Verdict:
    if operands and operands[0].text == "!":
        return negated(_plain(operands[1:])) if operands[1:2] != operands[:1] else None
    return _plain(operands)


def _plain(operands: Sequence[Operand]) -> Verdict:
    if len(operands) < 2:
        return _filled(operands[0]) if operands else False
    if len(operands) == 2:
        asks, filled = operands[0].text, _filled(operands[1])
        whole = {"-n": filled, "-z": negated(filled)}
        return whole.get(asks) if asks[:1] in "-!" else False  # `[ = x ]`: bash stops at it
    operands = [replace(one, value=_on_first(one.value)) for one in operands]
    if len(operands) != 3 or any(names_of(operand.value) for operand in operands):
        return None
    left, asks, right = operands[0].text, operands[1].text, operands[2]
    if asks in ("=", "==", "!="):
        pattern = right.pattern
        same = left == right.text if pattern is None else matches(operands[0].value, pattern)
        return same == (asks != "!=")
    if asks in _ORDERS:
        numbers = evaluated(left), evaluated(right.text)
        if None not in numbers:
            return bool(evaluated(f"({numbers[0]}){_ORDERS[asks]}({numbers[1]})"))
    return None


def _filled(operand: Operand) -> Verdict:
    """Is there text, whatever a run would tell?"""
    if any(piece.text and not piece.names for piece in operand.value):
        return True
    return None if any(piece.names and piece.text for piece in operand.value) else False


def _on_first(value: Value) -> Value:
    """With 0 for the number of a node or a rank that nobody sets: it has names and no text."""
    return tuple(Piece("0", p.place) if p.names and not p.text else p for p in value)
