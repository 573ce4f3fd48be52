"""What one setting gains: no change of the model may turn the sign of a published pair."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainplan.cli.files import read_runs
from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.validate import predict, scores

ROOT = Path(__file__).parents[2]
RUNS = [ROOT / "examples" / "accuracy" / name for name in ("runs.jsonl", "twins.jsonl")]
WRONG = Path(__file__).parent / "wrong_signs.txt"
"""Pairs whose sign is wrong today: twins and changed run. One that comes right is taken out."""


@pytest.fixture(scope="module")
def gains():
    records = [run for path in RUNS for run in read_runs(path)]
    twins = [run for run in records if isinstance(run, MeasuredRun) and run.twins]
    return scores(predict(twins), everything=True).gains


def test_no_sign_turns(gains):
    wrong = {f"{pair.name} {pair.id}" for pair in gains.pairs if not pair.sign_right}
    known = set(WRONG.read_text(encoding="utf-8").splitlines())
    assert sorted(wrong - known) == [], "signs that were right"
    assert sorted(known - wrong) == [], "signs that are right now: take them out of the list"


def test_every_pair_states_a_measured_change(gains):
    assert gains.overall.n == len(gains.pairs) >= 100
    assert all(pair.measured_fraction > -1 for pair in gains.pairs)


def test_a_change_below_a_percent_has_no_sign(gains):
    still = replace(gains.pairs[0], measured_fraction=0.004, priced_fraction=-0.02)
    assert still.sign_right
    assert not replace(still, priced_fraction=-0.04).sign_right
    assert not replace(still, measured_fraction=0.05, priced_fraction=0.001).sign_right
    assert replace(still, measured_fraction=0.05, priced_fraction=0.125).size_right
    assert not replace(still, measured_fraction=0.05, priced_fraction=0.135).size_right


def test_a_run_is_no_twin_of_itself(gains):
    record = next(run for run in read_runs(RUNS[1]) if run.id == gains.pairs[-1].id)
    twins = (*(twin.model_copy(update={"base": True}) for twin in record.twins), *record.twins)
    alone = record.model_copy(update={"twins": twins})
    assert scores(predict([alone]), everything=True).gains is None
