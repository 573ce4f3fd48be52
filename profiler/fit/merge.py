"""One profile out of several of the same kind of GPU: of other nodes, or of other items."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from trainplan.costmodel import catalog
from trainplan.costmodel.base import CatalogError, SpecError
from trainplan.costmodel.hardware import GpuSpec
from trainplan.costmodel.profiles import Point, Profile, Timing
from trainplan.costmodel.spec import Sourced
from trainplan.profiler.fit.points import fitted
from trainplan.profiler.journal import DOUBTFUL

AGREE = 3.0
"""Timings agree within that many times their spread.

Source: three standard deviations hold 99.7 % of normal errors, so what differs by more is not the
same thing measured twice.
"""
LEAST_SPREAD = 0.02
"""Spread assumed where a timing states less.

Source: repeats of one run share its clocks and temperature and agree better than two runs do, so
their spread alone is too small.
"""

MISSING_DEVICE = (
    "measure products and streams in one run, `plan profile --only gemm --only stream`, and give "
    "that profile with this one"
)
"""What to do about a device of which nobody knows the numbers."""


def merged(profiles: Sequence[Profile]) -> Profile:
    """All points of all profiles, what several of them measured once, and the curves through them.

    By several: the mean where they agree, else the slower one, and a note names it: the slowest
    node sets the pace. Of a doubtful timing and one that is not the latter counts. A profile given
    twice counts once.

    Raises:
        SpecError: They are of different GPUs.
        CatalogError: Nobody knows the numbers of their GPU.
    """
    first = profiles[0]
    if len(profiles) == 1:
        spec_of(first)
        return first
    gpus = sorted({profile.gpu for profile in profiles})
    if len(gpus) > 1:
        raise SpecError(f"profiles of {' and '.join(gpus)} do not merge: give those of one GPU")
    points: dict[tuple[object, ...], tuple[Point, ...]] = {}
    notes: list[str] = []
    for profile in profiles:
        for key, mine in _by_identity(profile.points).items():
            points[key] = _joined(points.get(key, ()), mine, notes)
    constants = {name: one for profile in profiles for name, one in profile.constants.items()}
    whole = first.model_copy(
        update={
            "device": _device(profiles),
            "num_nodes": max(profile.num_nodes for profile in profiles),
            "gpus_per_node": max(profile.gpus_per_node for profile in profiles),
            "origins": tuple(dict.fromkeys(o for p in profiles for o in p.origins)),
            "hosts": tuple(dict.fromkeys(h for p in profiles for h in p.hosts)),
            "points": tuple(point for same in points.values() for point in same),
            "constants": constants,
            "failures": tuple(dict.fromkeys(f for p in profiles for f in p.failures)),
            "notes": tuple(dict.fromkeys((*_all_notes(profiles), *notes))),
        }
    )
    return fitted(whole, spec_of(whole))


def spec_of(profile: Profile) -> GpuSpec:
    """Numbers of the GPU of a profile: its own, or the catalog's.

    Raises:
        CatalogError: It brings none and the catalog does not know the GPU.
    """
    if not has_spec(profile):
        raise CatalogError(
            f"unknown GPU {profile.gpu!r}: it is not in the catalog and its profile has no "
            f"numbers of it; {MISSING_DEVICE}"
        )
    return profile.device or catalog.gpu(profile.gpu)


def has_spec(profile: Profile) -> bool:
    """Are the numbers of its GPU known? Without them there are points, and no curves."""
    return profile.device is not None or profile.gpu in catalog.gpu_names()


def identity(point: Point) -> tuple[object, ...]:
    """What was measured, apart from how long it took."""
    return tuple(
        (name, value)
        for name, value in point
        if not isinstance(value, Timing) and not _result(name)
    )


def _by_identity(points: Iterable[Point]) -> Mapping[tuple[object, ...], tuple[Point, ...]]:
    """What one profile has of each thing measured, mostly one point."""
    found: dict[tuple[object, ...], tuple[Point, ...]] = {}
    for point in points:
        key = identity(point)
        found[key] = (*found.get(key, ()), point)
    return found


def _joined(
    known: tuple[Point, ...], more: tuple[Point, ...], notes: list[str]
) -> tuple[Point, ...]:
    """Points of several profiles of one thing; what is known already adds nothing."""
    new = tuple(point for point in more if point not in known)
    if not known or not new:
        return known or more
    return (reduce(lambda one, other: _pooled(one, other, notes), (*known, *new)),)


def _device(profiles: Sequence[Profile]) -> GpuSpec | None:
    """Numbers of a device the catalog lacks: the most that any profile reached.

    Source: a peak is the highest rate that any point reached, so under the highest of all profiles
    the curves of each stay below it.
    """
    devices = [profile.device for profile in profiles if profile.device]
    return reduce(_better, devices) if devices else None


def _better(one: GpuSpec, other: GpuSpec) -> GpuSpec:
    numbers = {
        name: max(value, theirs, key=lambda number: number.value)
        for name, value in one
        if isinstance(value, Sourced) and isinstance(theirs := getattr(other, name), Sourced)
    }
    peaks = {**other.peak_tflops, **one.peak_tflops}
    for name in one.peak_tflops.keys() & other.peak_tflops.keys():
        peaks[name] = max(
            one.peak_tflops[name], other.peak_tflops[name], key=lambda number: number.value
        )
    return one.model_copy(update={**numbers, "peak_tflops": dict(sorted(peaks.items()))})


def _result(name: str) -> bool:
    return name in {
        "saved_bytes",
        "lane_seconds",
        "floor_seconds",
        "path_seconds",
        "compute_slowdown",
        "communication_slowdown",
        "value",
        "watts",
        "joules_per_call",
        "seconds_per_call",
        "sm_mhz",
        "celsius",
        "slowed_by",
        "forward",
        "backward",
        "weight",
        "both",
    }


def _pooled(one: Point, other: Point, notes: list[str]) -> Point:
    timings, others = _timings(one), _timings(other)
    pairs = {name: (timings[name], others[name]) for name in timings.keys() & others.keys()}
    both = {name: _clean(*pair) or _mean(*pair) for name, pair in pairs.items()}
    odd = [name for name, pair in pairs.items() if not _clean(*pair) and not _agree(*pair)]
    if odd:
        notes.append(f"{_text(one)}: measured twice and not the same; the slower one is used")
        return max(one, other, key=lambda point: sum(t.seconds for t in _timings(point).values()))
    return one.model_copy(update=both) if both else other


def _clean(one: Timing, other: Timing) -> Timing | None:
    """The one without a flag that another time may clear, where the other has one."""
    clean = [time for time in (one, other) if not DOUBTFUL & set(time.flags)]
    return clean[0] if len(clean) == 1 else None


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


def _timings(point: Point) -> Mapping[str, Timing]:
    return {name: value for name, value in point if isinstance(value, Timing)}


def _text(point: Point) -> str:
    sizes = [f"{name}={value}" for name, value in point if isinstance(value, int | str)]
    return " ".join(sizes)


def _all_notes(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Without those on a device whose numbers another profile brings: without any, none merge."""
    notes = (note for profile in profiles for note in profile.notes)
    return tuple(note for note in notes if not note.endswith(MISSING_DEVICE))
