"""What a sweep can vary, and how its values are written."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar, get_args

from trainplan.costmodel.base import NumberKind, PlanError, SpecError, did_you_mean, read_number
from trainplan.costmodel.hardware import MOST_GPUS
from trainplan.costmodel.job import Precision
from trainplan.costmodel.presets import gpu_intended
from trainplan.costmodel.spec import LARGEST_SIZE
from trainplan.planner.cases import (
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
from trainplan.planner.space import Choice, parse_choice

MOST_VALUES = 64
"""Values of one knob."""


LEAST_FACTOR, MOST_FACTOR = 1e-6, 1e6
"""Of the bandwidth of a NIC. Source: assumed, as the memory; far beyond any machine."""
LEAST_GIB, MOST_GIB = 1e-3, 1e6
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Knob(Generic[ValueT]):
    """How a value is read from its text, and what it does to a question."""

    read: Callable[[str], ValueT]
    apply: Callable[[Case, ValueT], Case]

    def turned(self, case: Case, text: str) -> Case:
        """The question with the knob at a value."""
        return self.apply(case, self.read(text))


def _count(most: int, kind: NumberKind = "count") -> Callable[[str], int]:
    """Reads a whole number from 1 to `most`."""

    def read(text: str) -> int:
        number = _number(text, kind)
        if not number.is_integer():
            raise SpecError(f"{text!r} is no whole number")
        if number > most:
            raise SpecError(f"{text!r} is too many: give at most {most:,}")
        return int(number)

    return read


def _within(least: float, most: float) -> Callable[[str], float]:
    """Reads a number from `least` to `most`."""

    def read(text: str) -> float:
        number = _number(text)
        if not least <= number <= most:
            raise SpecError(f"{text!r} is out of range: give {least:g} to {most:g}")
        return number

    return read


def _number(text: str, kind: NumberKind = "count") -> float:
    number = float(read_number(text, kind))
    if not number:
        raise SpecError(f"{text!r} is no number above 0")
    return number


def _gpu(text: str) -> str:
    return gpu_intended(text)


def _precision(text: str) -> str:
    names = [str(name) for name in get_args(Precision)]
    if text not in names:
        raise SpecError(f"precision is one of {', '.join(names)}")
    return text


KNOBS: Mapping[str, Knob[int] | Knob[float] | Knob[str]] = MappingProxyType(
    {
        "gpus": Knob(_count(MOST_GPUS), with_gpus),
        "global_batch_size": Knob(_count(LARGEST_SIZE), with_batch),
        "seq_length": Knob(_count(LARGEST_SIZE, "length"), with_sequence),
        "nic": Knob(_within(LEAST_FACTOR, MOST_FACTOR), with_nic),
        "gpu": Knob(_gpu, with_gpu),
        "precision": Knob(_precision, with_precision),
        "memory_gib": Knob(_within(LEAST_GIB, MOST_GIB), with_memory),
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
    try:
        listed = _listed(values, "length" if knob == "seq_length" else "count")
        read = [KNOBS[knob].read(value) for value in listed] if knob in KNOBS else []
        if any(not isinstance(value, str) for value in read):
            listed = _distinct(tuple(f"{value:.12g}" for value in read))
    except PlanError as error:
        raise SpecError(f"{text!r}: {error}") from error
    for value in listed if knob not in KNOBS else ():
        _choice(knob, value)
    return Varied(knob, listed)


def _listed(values: str, kind: NumberKind) -> tuple[str, ...]:
    first, dots, last = values.partition("..")
    return _distinct(
        _doubled(first, last, kind) if dots else tuple(map(str.strip, values.split(",")))
    )


def _distinct(listed: tuple[str, ...]) -> tuple[str, ...]:
    if len(listed) > MOST_VALUES or len(set(listed)) != len(listed):
        raise SpecError(f"at most {MOST_VALUES} values, each once")
    return listed


def _doubled(first: str, last: str, kind: NumberKind) -> tuple[str, ...]:
    """From the first value by doubling up to the last."""
    value, end = _number(first, kind), _number(last, kind)
    if value > end:
        raise SpecError(f"{first}..{last}: the first value is the larger one")
    steps = min(int(math.log2(end / value) + 1e-9), MOST_VALUES)
    return tuple(f"{value * 2**step:.12g}" for step in range(steps + 1))


def turned(case: Case, knob: str, value: str) -> Case:
    """The question with a knob at a value.

    Raises:
        SpecError: There is no such job.
    """
    found = KNOBS.get(knob)
    return found.turned(case, value) if found else with_choice(case, _choice(knob, value))


def _choice(knob: str, value: str) -> Choice:
    try:
        return parse_choice(f"{knob}={value}", excluded=False)
    except SpecError as error:
        intended = did_you_mean("knob", knob, KNOBS)
        knobs = f"knobs are {', '.join(KNOBS)} and these fields"
        raise SpecError(
            f"{error}; {intended} {knobs}" if intended else f"{error}; {knobs}"
        ) from error
