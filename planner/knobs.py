"""What a sweep can vary, and how its values are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from costmodel.errors import SpecError
from planner.constraints import Choice, parse_choice
from planner.variations import (
    Case,
    with_batch,
    with_choice,
    with_gpu,
    with_gpus,
    with_memory,
    with_nic,
    with_precision,
    with_sequence,
)

MOST_VALUES = 64
"""Values of one knob."""


def _whole(text: str) -> int:
    number = _number(text)
    if not number.is_integer():
        raise SpecError(f"{text!r} is no whole number")
    return int(number)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise SpecError(f"{text!r} is no number above 0")
    return number


Apply = Callable[[Case, str], Case]

KNOBS: Mapping[str, Apply] = MappingProxyType(
    {
        "gpus": lambda case, text: with_gpus(case, _whole(text)),
        "global_batch_size": lambda case, text: with_batch(case, _whole(text)),
        "seq_length": lambda case, text: with_sequence(case, _whole(text)),
        "nic": lambda case, text: with_nic(case, _number(text)),
        "gpu": with_gpu,
        "precision": with_precision,
        "memory_gib": lambda case, text: with_memory(case, _number(text)),
    }
)
"""Of the job and its machine; every field that `--fix` takes is a knob as well."""


@dataclass(frozen=True, slots=True)
class Varied:
    """A knob and the values it takes."""

    knob: str
    values: tuple[str, ...]


def parse_varied(text: str) -> Varied:
    """Read `gpus=64..4096`, which doubles, or `gpus=64,96,128`, or `tp=1,2,4`.

    Raises:
        SpecError: Unknown knob, or values it does not take.
    """
    knob, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not values:
        raise SpecError(f"{text!r}: expected KNOB=VALUES such as gpus=64..4096 or tp=1,2,4,8")
    first, dots, last = values.partition("..")
    listed = _doubled(first, last) if dots else tuple(v.strip() for v in values.split(","))
    if len(listed) > MOST_VALUES or len(set(listed)) != len(listed):
        raise SpecError(f"{text!r}: at most {MOST_VALUES} values, each once")
    if knob not in KNOBS:
        for value in listed:
            _choice(knob, value)
    return Varied(knob, listed)


def _doubled(first: str, last: str) -> tuple[str, ...]:
    """From the first value by doubling up to the last."""
    value, end = _number(first), _number(last)
    if value > end:
        raise SpecError(f"{first}..{last}: the first value is the larger one")
    steps = min(int(math.log2(end / value) + 1e-9), MOST_VALUES)
    return tuple(f"{value * 2**step:.12g}" for step in range(steps + 1))


def turned(case: Case, knob: str, value: str) -> Case:
    """The question with a knob at a value.

    Raises:
        SpecError: There is no such job.
    """
    apply = KNOBS.get(knob)
    return apply(case, value) if apply else with_choice(case, _choice(knob, value))


def _choice(knob: str, value: str) -> Choice:
    try:
        return parse_choice(f"{knob}={value}", excluded=False)
    except SpecError as error:
        raise SpecError(f"{error}; knobs are {', '.join(KNOBS)} and these fields") from error
