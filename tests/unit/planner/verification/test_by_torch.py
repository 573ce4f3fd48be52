"""Plans of torch's own parallelism, shrunk, and what their ranks should keep."""

import pytest

from tests.torch_requests import TINY, request
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layout.layout import stage_specs
from trainplan.costmodel.runtimes import traits_of
from trainplan.planner.verification.by_megatron import Combination
from trainplan.planner.verification.by_runtime import combinations
from trainplan.planner.verification.by_torch import (
    head_pass_bytes,
    torch_combinations,
    torch_expected,
)
from trainplan.planner.verification.expected import pass_bytes
from trainplan.profiler.train.client import refusing


def refuse_nothing(job, layout):
    return None


def wanted(nproc, refuse=refuse_nothing, **layout):
    plan = request(**layout)
    return torch_combinations(plan.job, plan.layout, nproc, refuse)


def degrees(one):
    layout = one.layout
    return layout.tp, layout.cp, layout.pp, layout.dp


def test_every_degree_is_run_by_itself_and_with_others():
    found = wanted(4, tp=2, cp=4, pp=2, dp=2, zero_stage=1, sequence_parallel=True)
    ran = {degrees(one) for one in found.others}
    alone = {(4, 1, 1, 1), (1, 4, 1, 1), (1, 1, 4, 1), (1, 1, 1, 4)}
    assert alone < ran
    assert {(2, 2, 1, 1), (2, 1, 2, 1), (1, 2, 1, 2), (1, 1, 2, 2)} < ran
    assert {one.layout.world_size for one in found.others} == {4}
    assert found.reference.layout.world_size == 1


def test_the_plan_s_runtime_and_knobs_are_kept():
    found = wanted(
        4, pp=2, vpp=2, dp=8, dp_replicate=2, zero_stage=1, schedule="zb-v", micro_batch_size=1
    )
    assert {one.job.runtime for one in found.others} == {"torchtitan"}
    piped = [one.layout for one in found.others if one.layout.pp > 1]
    assert {(one.schedule, one.vpp) for one in piped} == {("zb-v", 2)}
    flat = next(one.layout for one in found.others if degrees(one) == (1, 1, 1, 4))
    assert (flat.dp_replicate, flat.zero_stage) == (2, 2)


def test_a_plan_of_which_nothing_runs_is_refused_and_not_called_equal():
    def refuse(job, layout):
        return "more than one process" if layout.world_size > 1 else None

    with pytest.raises(SpecError, match=r"nothing of the layout .*: dp: more than one process"):
        wanted(2, refuse, dp=2, zero_stage=3)


def test_a_degree_that_nothing_runs_is_told_with_the_reason():
    def refuse(job, layout):
        return "a ring" if layout.cp > 1 else None

    found = wanted(2, refuse, cp=2, dp=2, zero_stage=3)
    assert "cp: a ring" in found.not_run
    assert not [one for one in found.others if one.layout.cp > 1]


def test_a_model_that_does_not_train_here_ends_it():
    with pytest.raises(SpecError, match="the trainer does not run its experts"):
        wanted(2, lambda job, layout: "its experts", dp=2, zero_stage=3)


def test_a_plan_of_the_first_fsdp_is_refused_by_its_own_name():
    plan = request(runtime="fms-fsdp", dp=2, zero_stage=3)
    with pytest.raises(SpecError, match="does not run plans of fms-fsdp"):
        combinations(plan.job, plan.layout, 2, refusing("torch"))


TOKENS, HIDDEN, VOCABULARY = 32, 64, 512
NORM = 2 * 4 * TOKENS * HIDDEN
"""Input and output of the last norm."""
LOSS = 4 * TOKENS * VOCABULARY


@pytest.mark.parametrize(
    ("schedule", "norms", "losses"), [("1f1b", 1, 1), ("zb-h1", 2, 1), ("gpipe", 8, 8)]
)
def test_the_last_stage_keeps_the_head_of_every_micro_batch_in_flight(schedule, norms, losses):
    plan = request(pp=2, zero_stage=0, schedule=schedule)
    found = torch_expected(Combination(plan.job, plan.layout)).saved_bytes[-1]
    layers = norms * pass_bytes(plan.job, plan.layout)[-1]
    assert found == layers + norms * NORM + losses * LOSS


@pytest.mark.parametrize(("vocabulary", "fullest"), [(64, "of layers"), (4096, "of the loss")])
def test_the_fullest_moment_counts_the_loss_only_where_one_waits(vocabulary, fullest):
    """Rank 1 runs F1 F1 F3 B3 F3 B3 F1: most layers are kept when no loss waits."""
    model = TINY.model_copy(update={"num_hidden_layers": 7, "vocab_size": vocabulary})
    layout = {"pp": 2, "vpp": 2, "schedule": "interleaved", "stages": stage_specs([1, 4, 1, 1])}
    plan = request(zero_stage=0, model=model, **layout)
    first, last = torch_expected(Combination(plan.job, plan.layout)).saved_bytes
    layer = pass_bytes(plan.job, plan.layout)[0]
    assert pass_bytes(plan.job, plan.layout).tolist() == [layer, 4 * layer, layer, layer]
    moments = {
        "of layers": 3 * 4 * layer,
        "of the loss": (2 * 4 + 1) * layer + NORM + 4 * TOKENS * vocabulary,
    }
    assert last == moments[fullest] == max(moments.values())
    assert first == 5 * layer


def test_tensor_ranks_cut_the_input_of_the_last_norm_and_the_logits():
    plan = request(tp=2, zero_stage=0, sequence_parallel=True)
    assert head_pass_bytes(plan.job, traits_of(plan.job), plan.layout) == (NORM * 3 / 4, LOSS / 2)


def test_ranks_of_one_stage_are_expected_to_be_alike():
    plan = request(pp=2, dp=2, zero_stage=1)
    found = torch_expected(Combination(plan.job, plan.layout))
    assert len(found.parameters) == 4
    assert found.parameters[0] == found.parameters[1] != found.parameters[2]
    assert found.sent[2] == found.sent[3]
