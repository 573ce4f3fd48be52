"""A search goes on with uneven stages, and says what of them is proven."""

from functools import partial

import numpy as np
import pytest

from tests.budgets import Steps, least_steps
from trainplan.cli.pages.plan import certificate_text
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.hardware.cluster import ClusterSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import stage_specs
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fronts import pareto
from trainplan.planner.goals.reach import reach
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.planner.tree.branch_and_bound import Search


@pytest.fixture
def job(make_job):
    """Four layers and a large vocabulary: the last of two even stages takes longer."""
    job = make_job("small-dense", "1x8:h100-sxm", 8)
    model = job.model.model_copy(update={"vocab_size": 512_000, "num_hidden_layers": 6})
    return job.model_copy(update={"model": model})


FOUR_BY_TWENTY = tuple(
    parse_choice(text, excluded=False)
    for text in ("tp=4", "pp=4", "vpp=20", "cp=2", "micro_batch_size=1")
)
Plain = partial(SearchOptions, search_options="none")
"""Settings are searched by other tests: here are stages."""
PIPELINE = tuple(parse_choice(text, excluded=False) for text in ("pp=2", "vpp=1", "offload=0"))


def test_stages_follow_the_work_where_the_head_is_heavy(job):
    uneven_result = search(job, Plain(fix=PIPELINE))
    even = search(job, Plain(fix=(*PIPELINE, parse_choice("stages=even", excluded=False))))
    stages = uneven_result.best.layout.stages
    assert stages is not None
    assert stages[0].layers > stages[1].layers
    assert uneven_result.best.estimate.step_time_s < even.best.estimate.step_time_s
    proof = uneven_result.certificate.uneven_stages
    assert proof.even_step_time_s == pytest.approx(even.best.estimate.step_time_s)
    assert uneven_result.certificate.lower_bound_s <= uneven_result.best.estimate.step_time_s
    assert even.certificate.uneven_stages is None


def test_two_groups_of_one_gpu_are_planned_as_one(job):
    options = Plain(fix=PIPELINE, top=1, slack=0.0)
    halves = job.model_copy(update={"cluster": parse_cluster("1x4:h100-sxm+1x4:h100-sxm")})
    whole = job.model_copy(update={"cluster": parse_cluster("2x4:h100-sxm")})
    one, other = (search(each, options) for each in (halves, whole))
    assert one.best.layout == other.best.layout
    assert one.certificate.uneven_stages == other.certificate.uneven_stages is not None


def test_no_proof_of_uneven_stages_is_claimed_where_the_time_was_spent_on_even_ones(job):
    wanted = Plain(fix=(*PIPELINE, *held("tp=1", "cp=1")), slack=0.0)
    whole = search(job, wanted)
    proofs = {}

    def complete(calls):
        try:
            proofs[calls] = search(job, wanted, Steps(calls)).certificate
        except SpecError:  # too early for any answer
            return False
        return proofs[calls].alternatives_complete

    assert proofs[least_steps(complete, 400)].uneven_stages is not None
    for proof in proofs.values():
        assert proof.lower_bound_s <= whole.best.estimate.step_time_s * (1 + 1e-9)


class Request(Steps):
    """Every question takes a moment."""

    def seconds_left(self) -> float:
        self.steps -= 1
        return max(0.0, self.steps / 1000)


def test_the_answer_is_proved_before_the_alternatives_are_complete(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", 16, 4096)
    wanted = Plain(slack=0.0, fix=held("cp=1", "offload=0"))
    whole = search(job, wanted)
    plans = {}

    def proved(calls):
        try:
            plans[calls] = search(job, wanted, Request(calls))
        except SpecError:  # too early for any answer
            return False
        return plans[calls].certificate.optimal

    plan = plans[least_steps(proved, 400)]
    assert not plan.certificate.alternatives_complete
    assert len(plan.candidates) <= len(whole.candidates)
    assert plan.best == whole.best
    assert plan.certificate.relaxed_bound_s == whole.certificate.relaxed_bound_s


class Heard(Steps):
    """What was reported, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[float] = []

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        self.done.append(done)


def test_the_search_for_even_stages_tells_how_far_it_is(make_job):
    budget = Heard()
    search(make_job("llama3-8b", "4x8:h100-sxm", 64, 4096), Plain(slack=0.0), budget)
    assert budget.done[0] < 1
    assert budget.done == sorted(budget.done)


def test_where_nothing_fits_the_space_is_walked_twice_at_most(make_job, monkeypatch):
    begun = []
    init = Search.__init__

    def counted(self, *args, **kwargs):
        begun.append(kwargs.get("exhaustive", False))
        init(self, *args, **kwargs)

    monkeypatch.setattr(Search, "__init__", counted)
    job = make_job("llama3.1-405b", "2x8:a100-sxm-40gb", 64, 4096)
    found = reach(SearchContext.of(job, SearchOptions(), NOTHING, Steps()))
    assert found.target is None
    assert begun[-1]
    assert begun.count(True) == 1
    begun.clear()
    held = SearchContext.of(job, SearchOptions(search_options="none"), NOTHING, Steps())
    assert reach(held).target is None
    assert begun == [False, True]


def held(*texts):
    return tuple(parse_choice(text, excluded=False) for text in texts)


EVEN_OUT = (parse_choice("stages=even", excluded=True),)


def test_free_stages_are_what_a_search_without_a_choice_gives(job):
    plan = search(job, Plain(fix=PIPELINE))
    uneven_result = search(job, Plain(fix=(*PIPELINE, *held("stages=free"))))
    assert uneven_result.best == plan.best
    assert uneven_result.certificate == plan.certificate


@pytest.fixture
def moe_job():
    """Qwen1.5-MoE with half its layers, where the best even layout has no better uneven stages."""
    config = {
        "model_type": "qwen2_moe",
        "num_hidden_layers": 12,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "vocab_size": 151_936,
        "max_position_embeddings": 8192,
    }
    nodes = {"gpu": "l40s", "num_nodes": 1, "gpus_per_node": 8}
    return Job(
        model=model_from_config(config, "half"),
        training=TrainingSpec(seq_length=4096, global_batch_size=32),
        cluster=ClusterSpec.model_validate(
            {"groups": [nodes | {"nic": {"per_node": 8, "gb_per_s": 25}}]}
        ),
    )


def test_the_number_of_alternatives_changes_neither_answer_nor_proof(moe_job):
    options = Plain(slack=0, fix=held("pp=2", "micro_batch_size=1"))
    ten, one, many = (
        search(moe_job, options.model_copy(update={"top": top})) for top in (10, 1, 30)
    )
    assert ten.best.layout.stages is not None
    assert [len(plan.candidates) for plan in (ten, one, many)] == [10, 1, 30]
    assert one.best == ten.best == many.best
    assert one.certificate == ten.certificate
    assert one.certificate.lower_bound_s == many.certificate.lower_bound_s


def test_excluding_free_stages_holds_the_even_split(job):
    uneven_result = parse_choice("stages=free", excluded=True)
    even = search(job, Plain(fix=(*PIPELINE, *held("stages=even"))))
    assert search(job, Plain(fix=PIPELINE, exclude=(uneven_result,))).best == even.best


def test_without_even_stages_the_best_others_are_given_though_they_take_longer(make_job):
    job = make_job("small-dense", "1x2:h100-sxm", 32)
    model = job.model.model_copy(update={"num_hidden_layers": 12, "vocab_size": 512})
    job = job.model_copy(update={"model": model})
    fix = held("pp=2", "vpp=1", "micro_batch_size=1", "recompute=none")
    even = search(job, Plain(fix=fix, search_options="none"))  # as uneven stages alone
    plan = search(job, Plain(fix=fix, exclude=EVEN_OUT))
    assert even.best.layout.stages is None
    assert sorted(stage.layers for stage in plan.best.layout.stages) == [5, 7]
    assert plan.best.estimate.step_time_s > even.best.estimate.step_time_s
    assert plan.certificate.optimal
    assert plan.certificate.uneven_stages.even_step_time_s == even.best.estimate.step_time_s
    assert len(plan.candidates) == 1
    alone = search(job, Plain(fix=fix, exclude=EVEN_OUT, only_answer=True))
    assert alone.best.layout == plan.best.layout


@pytest.mark.parametrize(
    ("update", "more", "says"),
    [
        ({"runtime": "megatron-deepspeed"}, {}, "runtime_splits_evenly"),
        ({}, {"fix": held("stages=even")}, "drop one"),
        ({}, {"objective": "memory"}, "--objective memory"),
        ({}, {"fix": held("pp=1")}, "drop --exclude stages=even"),
    ],
)
def test_even_stages_cannot_be_excluded_where_there_are_no_others(job, update, more, says):
    with pytest.raises(SpecError, match=says):
        search(job.model_copy(update=update), SearchOptions(exclude=EVEN_OUT, **more))


def test_choices_of_two_objectives_have_even_stages(job):
    with pytest.raises(SpecError, match="--pareto"):
        pareto(job, ("time", "memory"), SearchOptions(exclude=EVEN_OUT))


def test_unlike_groups_can_be_asked_for_uneven_stages(make_job):
    job = make_job("small-dense", "1x4:h100-sxm+1x4:a100-sxm-80gb")
    plan = search(job, Plain(fix=held("pp=2"), exclude=EVEN_OUT, only_answer=True))
    assert len({stage.layers for stage in plan.best.layout.stages}) > 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("micro_batch_size=3", "1, 2, 4"),
        ("tp=3", "1, 2, 4, 8"),
        ("schedule=gpipe", "1f1b, interleaved"),
        ("dp_replicate=3", "1, 2, 4, 8"),
        ("recompute_num_layers=40", "0, 1, 2, 3, 4, 5, 6"),
        ("recompute_modules=moe", "core_attn, mlp"),
    ],
)
def test_a_value_the_search_does_not_try_is_answered_with_those_it_tries(job, text, says):
    answer = search(job, Plain(fix=held(text), only_answer=True))
    assert answer.untried[0].startswith(f"--fix {text}: the search tries {says}")


def test_values_the_search_tries_are_not_told(job):
    answer = search(job, Plain(fix=held("tp=8", "pp=8"), only_answer=True))
    assert answer.untried == ()


def test_where_no_even_stages_fit_uneven_ones_are_an_answer(job):
    held = ("tp=1", "cp=1", "micro_batch_size=1", "recompute=none", "offload=0")
    fix = (*PIPELINE, *(parse_choice(text, excluded=False) for text in held))
    even = search(job, Plain(fix=(*fix, parse_choice("stages=even", excluded=False))))
    memory = even.best.estimate.memory
    margin = 1 - (memory.peak_reserved_bytes - 1) / memory.capacity_bytes
    plan = search(job, Plain(fix=fix, memory_margin=margin))
    assert plan.best.layout.stages is not None
    assert plan.best.estimate.memory.peak_reserved_bytes < memory.peak_reserved_bytes
    assert plan.certificate.lower_bound_s <= plan.best.estimate.step_time_s
    assert "with uneven stages (no even ones fit) under" in certificate_text(plan)


def test_no_layer_moved_makes_an_answer_with_chunks_faster(make_job):
    job = make_job("llama3-70b", "8x8:h100-sxm", 128, 8192)
    plan = search(job, Plain(top=1, fix=FOUR_BY_TWENTY, slack=0))
    layout, proof = plan.best.layout, plan.certificate
    stages = [stage.layers for stage in layout.stages]
    assert max(stages) - min(stages[1:-1]) == 1
    assert proof.gap_fraction == 0
    assert 0 < proof.uneven_stages.any_split_lower_bound_s <= plan.best.estimate.step_time_s
    for one, other in ((0, 1), (75, 1), (76, 40), (3, 76), (79, 75)):
        moved = np.array(stages) + np.eye(80, dtype=int)[one] - np.eye(80, dtype=int)[other]
        if moved[1:-1].all() and (moved >= 0).all():
            tried = layout.model_copy(update={"stages": stage_specs(moved.tolist())})
            assert estimate(job, tried).step_time_s >= plan.best.estimate.step_time_s
