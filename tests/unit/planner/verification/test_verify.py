"""What `plan verify` runs of a plan, and how it judges what ranks saw."""

from dataclasses import dataclass, field

import pytest

from trainplan.costmodel.base.errors import PlanError, SpecError
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.verification.by_megatron import combinations
from trainplan.planner.verification.compared import compared, tolerance
from trainplan.planner.verification.expected import Expected, expected
from trainplan.planner.verification.runs import verify
from trainplan.planner.verification.shrink import EXPERTS, VOCABULARY, tiny_model

DENSE = Layout(tp=4, pp=4, dp=2, sequence_parallel=True, recompute="none")


def nothing(job, layout):
    return None


@pytest.fixture(scope="module")
def dense_job(make_job):
    return make_job("llama3-70b", "4x8:h100-sxm", global_batch_size=64)


@pytest.fixture(scope="module")
def moe_job(make_job):
    return make_job("mixtral-8x7b", "4x8:h100-sxm", global_batch_size=64)


def test_the_tiny_model_has_the_kinds_of_parts_of_the_model():
    shared = tiny_model(preset("llama3-70b"), 4)
    assert (shared.num_attention_heads, shared.num_key_value_heads) == (8, 4)
    assert shared.gated_mlp
    assert shared.norm == "rmsnorm"
    own = tiny_model(preset("gpt2"), 6)
    assert (own.num_attention_heads, own.num_key_value_heads) == (8, 8)
    assert own.tie_word_embeddings
    assert own.mlp_bias
    assert own.position_embedding == "learned"
    assert (own.num_hidden_layers, own.vocab_size) == (6, VOCABULARY)


def test_experts_stay_behind_leading_dense_layers():
    moe = tiny_model(preset("deepseek-v3"), 4).moe
    assert moe is not None
    assert (moe.num_experts, moe.num_experts_per_tok, moe.first_k_dense_replace) == (EXPERTS, 2, 1)
    assert moe.shared_expert_intermediate_size > 0
    assert moe.router_score_function == "sigmoid"
    everywhere = tiny_model(preset("mixtral-8x7b"), 4).moe
    assert everywhere is not None
    assert (everywhere.first_k_dense_replace, everywhere.moe_layer_freq) == (0, 1)


def test_masks_that_no_layout_cuts_are_left_out_and_said(make_job):
    job = make_job("phi3-mini", "1x8:h100-sxm")
    wanted = combinations(job, Layout(tp=2), 2, nothing)
    assert set(wanted.reference.job.model.mixers) == {"full_attention"}
    assert any("sliding_attention" in line for line in wanted.simplified)
    assert not any("sliding_attention" in line for line in wanted.not_run)


@pytest.mark.parametrize("nproc", [2, 4, 8])
def test_every_combination_fits_the_processes_and_the_layers(dense_job, nproc):
    plan = DENSE.model_copy(update={"vpp": 2, "schedule": "interleaved"})
    wanted = combinations(dense_job, plan, nproc, nothing)
    for one in wanted.others:
        layout, layers = one.layout, one.job.model.num_hidden_layers
        assert layout.world_size <= nproc
        assert layers % (layout.pp * layout.vpp) == 0
        assert one.job.cluster.num_gpus == layout.world_size
        assert one.job.training.global_batch_size % (layout.dp * layout.micro_batch_size) == 0
    assert any(one.layout.world_size == nproc for one in wanted.others)
    assert wanted.reference.layout.world_size == 1


def test_a_plan_is_run_by_its_features_alone_and_together(dense_job):
    wanted = combinations(dense_job, DENSE, 4, nothing)
    shapes = {(one.layout.tp, one.layout.pp, one.layout.dp) for one in wanted.others}
    assert {(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)} == shapes
    together = [one.layout for one in wanted.others if one.layout.tp == 2]
    assert all(layout.sequence_parallel for layout in together)


def test_what_a_plan_does_not_use_is_not_run(dense_job):
    wanted = combinations(dense_job, Layout(dp=8), 4, nothing)
    assert {(one.layout.tp, one.layout.pp) for one in wanted.others} == {(1, 1)}
    assert {one.layout.zero_stage for one in wanted.others} == {0, 1}
    assert all(one.layout.recompute == "none" for one in wanted.others)


def test_eight_processes_hold_all_three_degrees_at_once(dense_job):
    wanted = combinations(dense_job, DENSE, 8, nothing)
    assert (2, 2, 2) in {(one.layout.tp, one.layout.pp, one.layout.dp) for one in wanted.others}


def test_uneven_stages_stay_uneven(dense_job):
    stages = stage_specs([18, 20, 20, 22])
    wanted = combinations(dense_job, DENSE.model_copy(update={"stages": stages}), 4, nothing)
    piped = [one for one in wanted.others if one.layout.pp > 1]
    assert piped
    for one in piped:
        assert one.layout.stages is not None
        counts = [stage.layers for stage in one.layout.stages]
        assert sum(counts) == one.job.model.num_hidden_layers
        assert counts[0] == min(counts) < max(counts)


def test_recomputation_is_run_alone_and_with_the_rest(dense_job):
    plan = DENSE.model_copy(
        update={"recompute": "full", "recompute_method": "block", "recompute_num_layers": 7}
    )
    repeated = [
        one.layout
        for one in combinations(dense_job, plan, 4, nothing).others
        if one.layout.recompute == "full"
    ]
    assert {layout.world_size for layout in repeated} == {1, 4}
    assert {layout.recompute_num_layers for layout in repeated} == {1}


def test_experts_are_dealt_out_over_tensor_and_data_ranks(moe_job):
    plan = Layout(tp=2, pp=2, dp=8, ep=8, sequence_parallel=True)
    layouts = [one.layout for one in combinations(moe_job, plan, 4, nothing).others]
    assert any((one.tp, one.dp, one.ep, one.etp) == (2, 2, 4, 1) for one in layouts)
    folded = plan.model_copy(update={"etp": 2})
    layouts = [one.layout for one in combinations(moe_job, folded, 4, nothing).others]
    assert any((one.tp, one.dp, one.ep, one.etp) == (2, 2, 2, 2) for one in layouts)


def test_what_cannot_be_run_is_said_once_with_its_reason(dense_job):
    plan = DENSE.model_copy(update={"cp": 2, "zero_stage": 3})

    def refuse(job, layout):
        return "pipelines: none here" if layout.pp > 1 else None

    wanted = combinations(dense_job, plan, 4, refuse)
    assert all(one.layout.pp == 1 for one in wanted.others)
    assert list(wanted.not_run).count("pipelines: none here") == 1
    assert any(line.startswith("cp:") for line in wanted.not_run)
    assert any(line.startswith("ZeRO-3:") for line in wanted.not_run)


def test_a_model_that_cannot_be_run_is_refused(dense_job):
    with pytest.raises(SpecError, match="wings"):
        combinations(dense_job, DENSE, 4, lambda job, layout: "the model's wings")


def test_a_rank_that_something_outside_ended_is_not_known(dense_job):
    wanted = combinations(dense_job, DENSE, 2, nothing)
    found = list(verify(wanted.reference, wanted.others, lambda one: ended(one, wanted)))
    assert [one.ended for one in found] == [True] * len(wanted.others)
    assert {one.failure for one in found} == {"rank 1 was ended by signal 6"}
    with pytest.raises(PlanError, match="one process did not come to its end: rank 1 was"):
        next(verify(wanted.others[0], wanted.others, lambda one: ended(one, wanted)))


def ended(one, wanted):
    return ([Saw()], 1.0) if one is wanted.reference else "rank 1 was ended by signal 6"


def test_layers_that_do_not_attend_are_refused_by_name(make_job):
    job = make_job("nemotron-3-nano-30b-a3b", "1x8:h100-sxm")
    with pytest.raises(SpecError, match="has layers of mamba"):
        combinations(job, Layout(tp=2), 2, nothing)


def test_a_layout_of_which_nothing_runs_is_refused_and_one_process_is_not(dense_job):
    with pytest.raises(SpecError, match="nothing of the layout can be run here: cp"):
        combinations(dense_job, Layout(cp=8), 4, nothing)
    assert combinations(dense_job, Layout(zero_stage=0), 4, nothing).others == ()


@dataclass(frozen=True)
class Saw:
    """What a rank reports."""

    losses: tuple[float, ...] = (7.0, 6.5)
    grad_norms: tuple[float, ...] = (1.5, 1.25)
    num_parameters: int = 100
    saved_bytes: int | None = 10_000
    sent: tuple[object, ...] = ()


@dataclass(frozen=True)
class Stated:
    group: str
    operation: str
    bytes: int


@dataclass(frozen=True)
class Judge:
    job: object
    counted: Expected = field(
        default=Expected((100, 100), ({("tp", "all_reduce"): 64},) * 2, (10_000.0,) * 2, 1)
    )

    def of(self, *ranks):
        return compared(self.job, [Saw()], ranks, self.counted)


SENT = (Stated("tp", "all_reduce", 64),)
FINE = Saw(sent=SENT)


@pytest.fixture(scope="module")
def judge(dense_job):
    return Judge(combinations(dense_job, DENSE, 2, nothing).reference.job)


def test_ranks_that_saw_what_is_counted_are_equal(judge):
    assert judge.of(FINE, FINE).equal


def test_a_loss_or_a_gradient_norm_beyond_rounding_is_not_equal(judge):
    allowed = tolerance(judge.job, 2)
    near = Saw((7.0, 6.5 * (1 + 0.9 * allowed)), sent=SENT)
    far = Saw((7.0, 6.5 * (1 + 1.1 * allowed)), sent=SENT)
    assert judge.of(near, FINE).equal
    assert not judge.of(far, FINE).equal
    assert not judge.of(Saw(grad_norms=(1.5, 1.25 * (1 + 2 * allowed)), sent=SENT), FINE).equal


def test_rounding_explains_less_than_a_thousandth(judge):
    assert 1e-6 < tolerance(judge.job, 1) < 1e-4
    assert tolerance(judge.job, 3) == pytest.approx(3 * tolerance(judge.job, 1))


def test_one_weight_more_is_said_with_its_rank(judge):
    found = judge.of(FINE, Saw(num_parameters=101, sent=SENT))
    assert not found.equal
    assert found.wrong_parameters == ("rank 1 has 101 parameters, 100 are counted",)


def test_one_byte_more_or_an_operation_that_is_not_counted_is_said(judge):
    more = judge.of(FINE, Saw(sent=(Stated("tp", "all_reduce", 65),)))
    assert more.wrong_sent == ("rank 1: all_reduce over tp of 65 bytes, 64 are counted",)
    other = judge.of(FINE, Saw(sent=(*SENT, Stated("dp", "all_reduce", 4))))
    assert other.wrong_sent == ("rank 1: all_reduce over dp of 4 bytes, 0 are counted",)
    assert not judge.of(FINE, Saw()).equal


def test_rows_of_experts_are_compared_over_all_ranks(judge):
    counted = Expected((100,) * 2, ({("ep", "all_to_all"): 50},) * 2, (10_000.0,) * 2, 2)
    experts = Judge(judge.job, counted)
    few, many = (Saw(sent=(Stated("ep", "all_to_all", size),)) for size in (40, 60))
    assert experts.of(few, many).equal
    assert not experts.of(few, few).equal


def test_saved_bytes_may_differ_by_half_a_per_cent(judge):
    assert judge.of(FINE, Saw(saved_bytes=10_049, sent=SENT)).equal
    found = judge.of(FINE, Saw(saved_bytes=10_060, sent=SENT))
    assert found.wrong_saved == ("rank 1 keeps 10,060 bytes, the memory model has 10,000",)


def test_ranks_of_gpus_do_not_count_saved_bytes(judge):
    found = judge.of(Saw(saved_bytes=None, sent=SENT), Saw(saved_bytes=None, sent=SENT))
    assert found.equal
    assert found.saved_difference is None


def test_ranks_that_share_experts_keep_the_mean(judge):
    shared = Judge(judge.job, Expected((100,) * 2, ({},) * 2, (10_000.0,) * 2, 2))
    assert shared.of(Saw(saved_bytes=9_000), Saw(saved_bytes=11_000)).equal


def test_a_combination_that_does_not_end_is_told_and_the_next_one_runs(dense_job):
    wanted = combinations(dense_job, DENSE, 2, nothing)

    def run(one):
        if one.layout.tp > 1:
            raise PlanError("rank 1 was ended by signal 9")
        counted = expected(one)
        ranks = [
            Saw(
                num_parameters=own,
                sent=tuple(Stated(*key, size) for key, size in sent.items()),
                saved_bytes=round(kept),
            )
            for own, sent, kept in zip(
                counted.parameters, counted.sent, counted.saved_bytes, strict=True
            )
        ]
        return ranks, 1.0

    found = list(verify(wanted.reference, wanted.others, run))
    assert len(found) == len(wanted.others)
    for one in found:
        assert one.equal == (one.combination.layout.tp == 1)
        assert bool(one.failure) == (one.combination.layout.tp > 1)
