"""The section of docs/accuracy.md on what one setting gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from accuracy_tables import Row, table

from trainplan.cli.files.runs import read_runs
from trainplan.cli.pages.validate import GAINS_HEAD
from trainplan.cli.words import percent, signed
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.gains import CLOSE, Gain, GainErrors, gains
from trainplan.costmodel.validate.predict import Prediction, predict

TWINS = Path(__file__).parents[2] / "examples" / "accuracy" / "twins.jsonl"


def section(predictions: Sequence[Prediction]) -> str:
    """Signs and sizes by what was changed, and every pair that is wrong."""
    twins = [run for run in read_runs(TWINS) if isinstance(run, MeasuredRun)]
    found = gains([*predictions, *predict(twins)])
    assert found
    whole = found.overall
    wrong = [pair for pair in found.pairs if not pair.sign_right]
    return f"""\
## What a setting gains

A planner compares settings. Of {whole.n} pairs of published runs that differ in one setting, the
sign of the gain is right in {percent(whole.signs_right / whole.n)}, and its size within
{100 * CLOSE:.0f} points in {percent(whole.sizes_right / whole.n)}. A measured change below 1 % has
no sign. Constants were fitted on these ratios too, those of a source as much as one source's step
times. No change of the model may turn a sign: `tests/golden/wrong_signs.txt` lists the wrong ones.

{table(("change", *GAINS_HEAD), (_kind(one) for one in (whole, *found.kinds)))}

Signs that are wrong, as changes of the step time:

{table(("change", "run", "measured", "priced"), _pairs(wrong))}"""


def _kind(one: GainErrors) -> Row:
    shares = (one.signs_right / one.n, one.sizes_right / one.n, one.mean_miss_fraction)
    return one.kind, str(one.n), *map(percent, shares)


def _pairs(pairs: Sequence[Gain]) -> Iterator[Row]:
    for one in sorted(pairs, key=lambda pair: (pair.kind, pair.id)):
        yield one.kind, f"`{one.id}`", signed(one.measured_fraction), signed(one.priced_fraction)
