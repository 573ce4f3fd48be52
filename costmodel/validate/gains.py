"""What a setting gains: measured and priced changes of runs that differ in it alone."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.validate.predict import Prediction
from trainplan.costmodel.validate.steps import has_comparable_step, measured_step_seconds

NOTHING, NEAR_NOTHING, LEAST = 0.01, 0.03, 0.002
"""Shares of a step. A measured change below the first has no sign, and a priced one below the
second agrees with it; a priced one below the third has no sign. Source: assumed; single runs of a
layout repeat within 1 %."""
CLOSE = 0.08
"""Difference of a measured and a priced change up to which the size of a gain is right."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One setting that was changed, as a share of the step time of the base: negative is a gain."""

    name: str
    id: str
    """Of the changed run."""
    kind: str
    source_group: str
    measured_fraction: float
    priced_fraction: float

    @property
    def sign_right(self) -> bool:
        """Is it priced as a gain where it is one, and as a loss where it is one?"""
        if abs(self.measured_fraction) < NOTHING:
            return abs(self.priced_fraction) < NEAR_NOTHING
        same = self.measured_fraction * self.priced_fraction > 0
        return same and abs(self.priced_fraction) >= LEAST

    @property
    def size_right(self) -> bool:
        """Is the priced change within `CLOSE` of the measured one?"""
        return abs(self.measured_fraction - self.priced_fraction) <= CLOSE


@dataclass(frozen=True, slots=True)
class GainErrors:
    """How often gains are right."""

    kind: str
    n: int
    signs_right: int
    sizes_right: int
    mean_miss_fraction: float
    """Of the absolute difference of measured and priced change."""


@dataclass(frozen=True, slots=True)
class Gains:
    """All pairs of twins."""

    pairs: tuple[Gain, ...]
    overall: GainErrors
    kinds: tuple[GainErrors, ...]


def gains(predictions: Sequence[Prediction]) -> Gains | None:
    """Every changed run with the base of its twins; null: there are no such pairs."""
    pairs = tuple(_pairs(predictions))
    if not pairs:
        return None
    kinds = sorted({pair.kind for pair in pairs})
    by_kind = [_errors(kind, [one for one in pairs if one.kind == kind]) for kind in kinds]
    return Gains(pairs, _errors("all", pairs), tuple(by_kind))


def _pairs(predictions: Sequence[Prediction]) -> Iterator[Gain]:
    bases: dict[str, Prediction] = {}
    others: Mapping[str, list[Prediction]] = defaultdict(list)
    for one in predictions:
        for twin in one.run.twins:
            if twin.base:
                bases[twin.name] = one
            else:
                others[twin.name].append(one)
    for name, base in bases.items():
        for one in (other for other in others[name] if other is not base):
            measured = measured_ratio(base.run, one.run, name)
            if measured and base.step_time_s and one.step_time_s:
                priced = (
                    one.step_time_s / base.step_time_s * num_tokens(base.run) / num_tokens(one.run)
                )
                kind = next(twin.kind for twin in one.run.twins if twin.name == name)
                yield Gain(name, one.run.id, kind, one.run.source_group, measured - 1, priced - 1)


def measured_ratio(base: MeasuredRun, one: MeasuredRun, name: str) -> float | None:
    """Time of a token of a run over that of the base of its twins; null: not measured."""
    relative = next(twin.relative_step for twin in one.twins if twin.name == name)
    first, second = measured_step_seconds(base), measured_step_seconds(one)
    comparable = all(has_comparable_step(run, everything=True) for run in (base, one))
    if relative or not comparable or first is None or second is None:
        return relative
    return second / first * num_tokens(base) / num_tokens(one)


def num_tokens(run: MeasuredRun) -> int:
    """Tokens of a step."""
    return (run.training.global_batch_size or 1) * (run.training.seq_length or 1)


def _errors(kind: str, pairs: Sequence[Gain]) -> GainErrors:
    return GainErrors(
        kind,
        len(pairs),
        sum(pair.sign_right for pair in pairs),
        sum(pair.size_right for pair in pairs),
        sum(abs(pair.measured_fraction - pair.priced_fraction) for pair in pairs) / len(pairs),
    )
