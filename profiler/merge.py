"""One profile out of several of the same kind of GPU: of other nodes, or of other items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costmodel import catalog
from costmodel.errors import SpecError
from costmodel.spec.gpu import GpuSpec
from costmodel.spec.profile import Point, Profile, Timing
from profiler.fit import fitted

AGREE = 3.0
"""Timings agree within that many times their spread. Source: derived, three deviations."""
LEAST_SPREAD = 0.02
"""Spread assumed where a timing states less. Source: derived; repeats of one run agree better than
two runs do."""


def merged(profiles: Sequence[Profile]) -> Profile:
    """All points of all profiles, what was measured twice once, and the curves through them.

    Twice: the mean where both agree, else the slower one, and a note names it: the slowest node
    sets the pace.

    Raises:
        SpecError: They are of different GPUs, or their devices differ.
    """
    first = profiles[0]
    if len(profiles) == 1:
        return first
    gpus = sorted({profile.gpu for profile in profiles})
    if len(gpus) > 1:
        raise SpecError(f"profiles of {' and '.join(gpus)} do not merge: give those of one GPU")
    points: dict[tuple[object, ...], Point] = {}
    notes: list[str] = []
    for point in (point for profile in profiles for point in profile.points):
        key = identity(point)
        points[key] = _pooled(points[key], point, notes) if key in points else point
    constants = {name: one for profile in profiles for name, one in profile.constants.items()}
    whole = first.model_copy(
        update={
            "num_nodes": max(profile.num_nodes for profile in profiles),
            "origins": tuple(dict.fromkeys(o for p in profiles for o in p.origins)),
            "hosts": tuple(dict.fromkeys(h for p in profiles for h in p.hosts)),
            "points": tuple(points.values()),
            "constants": constants,
            "failures": tuple(f for p in profiles for f in p.failures),
            "notes": tuple(dict.fromkeys((*_all_notes(profiles), *notes))),
        }
    )
    return fitted(whole, spec_of(whole))


def spec_of(profile: Profile) -> GpuSpec:
    """Numbers of the GPU of a profile: its own, or the catalog's.

    Raises:
        CatalogError: It brings none and the catalog does not know the GPU.
    """
    return profile.device or catalog.gpu(profile.gpu)


def identity(point: Point) -> tuple[object, ...]:
    """What was measured, apart from how long it took."""
    return tuple(
        (name, value)
        for name, value in point
        if not isinstance(value, Timing) and not _result(name)
    )


def _result(name: str) -> bool:
    return name in {
        "saved_bytes",
        "compute_slowdown",
        "communication_slowdown",
        "value",
        "watts",
        "joules_per_call",
        "forward",
        "backward",
        "weight",
        "both",
    }


def _pooled(one: Point, other: Point, notes: list[str]) -> Point:
    timings = {name: value for name, value in one if isinstance(value, Timing)}
    others = {name: value for name, value in other if isinstance(value, Timing)}
    both = {name: _mean(timings[name], others[name]) for name in timings.keys() & others.keys()}
    odd = [name for name in both if not _agree(timings[name], others[name])]
    if odd:
        notes.append(f"{_text(one)}: measured twice and not the same; the slower one is used")
        return max(one, other, key=_total)
    return one.model_copy(update=both) if both else other


def _agree(one: Timing, other: Timing) -> bool:
    spread = max(one.spread_fraction, other.spread_fraction, LEAST_SPREAD)
    mean = (one.seconds + other.seconds) / 2
    return abs(one.seconds - other.seconds) <= AGREE * spread * mean


def _mean(one: Timing, other: Timing) -> Timing:
    """Weighted by repeats."""
    repeats = one.repeats + other.repeats
    seconds = (one.seconds * one.repeats + other.seconds * other.repeats) / repeats
    return one.model_copy(
        update={
            "seconds": seconds,
            "repeats": repeats,
            "spread_fraction": max(one.spread_fraction, other.spread_fraction),
            "flags": tuple(dict.fromkeys((*one.flags, *other.flags))),
        }
    )


def _total(point: Point) -> float:
    return sum(value.seconds for _, value in point if isinstance(value, Timing))


def _text(point: Point) -> str:
    sizes = [f"{name}={value}" for name, value in point if isinstance(value, int | str)]
    return " ".join(sizes)


def _all_notes(profiles: Iterable[Profile]) -> tuple[str, ...]:
    return tuple(note for profile in profiles for note in profile.notes)
