"""`import trainplan` as a user's checker sees it: `make check` has mypy read this file, too."""

from typing import assert_type

import pytest

import trainplan as tp
from trainplan import planner

MODEL, CLUSTER = "gpt2", "1x8:h100-sxm"


def test_an_answer_is_typed_to_its_last_number() -> None:
    plan = tp.search(MODEL, CLUSTER, global_batch_size=8, seq_length=1024, top=2)
    assert_type(plan, tp.Plan | tp.Infeasible)
    if not plan:
        assert_type(plan, tp.Infeasible)
        raise AssertionError(plan)
    assert_type(plan, tp.Plan)
    assert_type(plan.best.estimate.step_time_s, float)
    assert_type(plan.alternatives[0], planner.Candidate)
    assert_type(plan.export().files["run.sh"], str)
    assert_type(tp.compare(plan, plan).throughput_ratio, float)
    assert plan.best in plan.alternatives


def test_keywords_are_typed() -> None:
    with pytest.raises(tp.Error):
        tp.search(MODEL, CLUSTER, global_batchsize=8)  # type: ignore[call-arg]
    with pytest.raises(tp.Error):
        tp.estimate(MODEL, CLUSTER, global_batch_size=[8])  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        tp.serach  # type: ignore[attr-defined]  # noqa: B018
