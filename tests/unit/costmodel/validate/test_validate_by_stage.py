"""Plans whose stages differ, by hand: each stage as a mean of layouts of equal stages."""

import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import explicit
from trainplan.costmodel.validate.cases.by_stage import stage_parts
from trainplan.costmodel.validate.cases.cases import Skipped
from trainplan.costmodel.validate.predict import predict

MODEL = {
    "num_layers": 8,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "vocab_size": 50257,
    "gated_mlp": False,
}


def run_of(stages, shares=None, **layout):
    """A pipeline of those stages, each (tp, dp, operations)."""
    named = [{"tp": tp, "dp": dp, "ops": ops} for tp, dp, ops in stages]
    stated = {"pp": len(stages), "per_stage": named, "micro_batch_size": 2, "zero_stage": 0}
    return MeasuredRun.model_validate(
        {
            "id": "one",
            "runtime": "megatron-lm",
            "model": MODEL,
            "attention_backend": "unfused",
            "training": {"seq_length": 1024, "global_batch_size": 32, "precision": "fp16"},
            "cluster": {"gpu": "l4", "num_gpus": sum(tp * dp for tp, dp, _ in stages)},
            "layout": {**stated, "recompute_fraction_per_stage": shares, **layout},
        }
    )


def weights_of(run):
    """Layers, recomputation and weight of the parts of every stage."""
    found = {}
    for part in stage_parts(run):
        layers = part.layout.stages[part.stage].layers
        key = layers, part.layout.recompute, part.layout.tp, part.layout.micro_batch_size
        found.setdefault(part.stage, {})[key] = pytest.approx(part.weight)
    return found


def test_thirteen_operations_are_a_layer_beside_the_ends():
    """1 + 4 * 13 and 4 * 13 + 2."""
    found = weights_of(run_of([(1, 1, 53), (2, 1, 54)]))
    assert found == {0: {(4, "none", 1, 2): 1.0}, 1: {(4, "none", 2, 2): 1.0}}


def test_a_part_of_a_layer_is_a_share_of_the_next_whole_number():
    found = weights_of(run_of([(1, 1, 1 + 4 * 13 + 5), (1, 1, 3 * 13 + 8 + 2)]))
    assert found[0] == {(4, "none", 1, 2): 8 / 13, (5, "none", 1, 2): 5 / 13}
    assert found[1] == {(3, "none", 1, 2): 5 / 13, (4, "none", 1, 2): 8 / 13}


def test_a_stage_counts_its_micro_batch_over_its_replicas():
    found = weights_of(run_of([(1, 2, 53), (2, 1, 54)]))
    assert list(found[0]) == [(4, "none", 1, 1)]
    assert list(found[1]) == [(4, "none", 2, 2)]


@pytest.mark.parametrize(
    ("operations", "weights"),
    [
        (0, {"none": 1.0}),
        (2 * 4, {"none": 1 / 2, "selective": 1 / 2}),
        (4 * 4, {"selective": 1.0}),
        (4 * 4 + 4 * 3, {"selective": 2 / 3, "full": 1 / 3}),
        (4 * 13, {"full": 1.0}),
    ],
)
def test_the_attention_core_runs_again_first_then_the_rest(operations, weights):
    """Four operations of thirteen; the token table is one of the 53 and never runs again."""
    run = run_of([(1, 1, 53), (1, 1, 54)], (operations / 53, 0.0))
    parts = [one for one in stage_parts(run) if one.stage == 0]
    assert {one.layout.recompute: pytest.approx(one.weight) for one in parts} == weights


def test_a_rank_holds_what_it_would_hold_in_a_pipeline_of_its_own_degrees():
    run = run_of([(1, 1, 53), (2, 1, 54)])
    (found,) = predict([run])
    assert found.skipped is None
    assert found.step_time_s is None
    for number, part in enumerate(stage_parts(run)):
        machine = machine_of(part.case.job.cluster, "fp16")
        table = LayoutTable.of([part.layout])
        (alone,) = explicit(context_of(part.case.job, machine).with_table(table))
        expected = alone.memory.pipeline_ranks[number]
        assert found.estimate.memory.pipeline_ranks[number].total_bytes == pytest.approx(
            expected.total_bytes
        )
    most = max(one.total_bytes for one in found.estimate.memory.pipeline_ranks)
    assert found.estimate.memory.peak_reserved_bytes == pytest.approx(most)


def test_gradients_of_such_plans_are_as_wide_as_weights():
    (found,) = predict([run_of([(1, 1, 53), (2, 1, 54)])])
    for rank in found.estimate.memory.pipeline_ranks:
        assert rank.gradients_bytes == pytest.approx(rank.weights_bytes)


def test_stages_of_unknown_layers_are_not_priced():
    found = stage_parts(run_of([(1, 1, None), (2, 1, None)]))
    assert isinstance(found, Skipped)
    assert found.detail == "layout.layers_per_stage is not stated"
    known = run_of([(1, 1, None), (2, 1, None)], layers_per_stage=[3, 5])
    assert [one.layout.stages[one.stage].layers for one in stage_parts(known)] == [3, 5]


def test_equal_degrees_with_shares_of_their_own_keep_their_step_time():
    run = run_of([(1, 1, 53), (1, 1, 54)], (0.2, 0.0), tp=1, dp=1)
    (found,) = predict([run])
    assert found.step_time_s > 0


def test_more_stages_than_layers_are_refused_before_they_are_priced():
    found = stage_parts(run_of([(1, 1, 13)] * 9))
    assert isinstance(found, Skipped)
    assert found.reason == "layout_impossible"
