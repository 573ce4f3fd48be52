"""The search against brute force, and the promises of its certificate."""

from dataclasses import astuple
from functools import cache, lru_cache, partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.budgets import Steps
from tests.fractions import with_every_fraction
from tests.grids import EXACT, number, some_cases
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates, context_of
from trainplan.costmodel.hardware.cluster import DriveSpec, HostSpec
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice, rules_of_job
from trainplan.planner.space.choices import broken_rules, rules_of_grid
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons
from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.result import SearchLimits
from trainplan.planner.work.budget import Unlimited

EVEN = (parse_choice("stages=even", excluded=False),)
pytestmark = pytest.mark.usefixtures("quarters")

JOBS = [
    ("small-dense", "1x8:h100-sxm", 16),
    ("small-moe", "1x4:h100-sxm", 16),
    ("small-moe", "2x2:a100-sxm-40gb", 12),
    ("small-seeing", "1x4:h100-sxm", 16),
    ("frozen-eyes", "1x2:h100-sxm", 8),
]


def every_legal_layout(job):
    """The grid without any pruning."""
    space, rules = Space(context_for(job)), rules_of_job(job)
    rule_filter = RuleFilter(job, rules)
    table, _ = memory_policies(
        space, skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    )
    whole = with_every_fraction(space.traits, table)
    legal = np.ones(len(whole), dtype=bool)
    for rule in rules:
        legal &= ~rule.broken(job, whole)
    return whole.take(legal)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 3, 1.6])
@pytest.mark.parametrize(
    "case",
    [
        *((*job, "megatron-lm") for job in JOBS),
        ("small-dense", "1x8:h100-sxm", 16, "torchtitan"),
        ("small-moe", "1x4:h100-sxm", 8, "torchtitan"),
        ("small-dense", "1x4:h100-sxm", 8, "megatron-zero-bubble"),
        ("small-dense", "1x4:h100-sxm", 8, "megatron-deepspeed"),
        ("small-moe", "1x4:h100-sxm", 8, "megatron-dualpipe"),
        ("small-dense", "1x8:h100-sxm", 16, "deepspeed"),
        ("small-dense", "2x2:a100-sxm-40gb", 8, "zero-topo"),
        ("small-seeing", "1x4:h100-sxm", 8, "torchtitan"),
    ],
)
def test_the_search_finds_what_brute_force_finds(make_job, case, memory_gib):
    model, cluster, batch, name = case
    wanted = {
        "runtime": name,
        "may_offload_activations": name == "megatron-lm",
        "may_replicate_shards": name == "torchtitan",
    }
    job = make_job(model, cluster, batch).model_copy(update=wanted)
    assert_best_of_all(job, memory_gib)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 6, 3, 2.2])
@pytest.mark.parametrize("liger", [None, "0.6"])
def test_long_sequences_are_tiled_where_brute_force_tiles_them(make_job, liger, memory_gib):
    job = make_job("small-dense", "1x4:h100-sxm", 4, 1 << 15)
    options = RuntimeOptions(liger=liger)
    assert_best_of_all(
        job.model_copy(update={"runtime": "deepspeed", "options": options}), memory_gib
    )


DRIVES = DriveSpec(count=2, tb=1, read_gb_per_s=3, write_gb_per_s=2)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [3, 1.1])
@pytest.mark.parametrize(
    "host",
    some_cases(
        [
            HostSpec(memory_gib=64),
            HostSpec(memory_gib=2, drives=DRIVES),
            HostSpec(memory_gib=0.8, drives=DRIVES),
            HostSpec(memory_gib=64, drives=DRIVES.model_copy(update={"tb": 1e-3})),
        ],
        2,
    ),
)
def test_a_host_that_is_small_is_shared_as_brute_force_shares_it(make_job, host, memory_gib):
    job = make_job("small-dense", "1x2:h100-sxm", 8).model_copy(update={"runtime": "deepspeed"})
    group = job.cluster.groups[0].model_copy(update={"host": host})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    assert_best_of_all(job.model_copy(update={"cluster": cluster}), memory_gib)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 1.6])
@pytest.mark.parametrize(
    "options",
    some_cases(
        [
            RuntimeOptions(cuda_graph="partial"),
            RuntimeOptions(cuda_graph="none", dropout=True),
            RuntimeOptions(overlap_grad_reduce=False, overlap_param_gather=False),
            RuntimeOptions(overlap_param_gather=True, overlap_tp_comm=True),
            RuntimeOptions(bucket_mb=1),
            RuntimeOptions(overlap_moe_a2a=True, moe_dispatcher="deepep"),
            RuntimeOptions(gradient_dtype="bf16", moment_dtype="bf16", cross_entropy="jit"),
            RuntimeOptions(attention="unfused", offload_activation_layers=2),
            RuntimeOptions(cp_comm_type="a2a"),
            RuntimeOptions(routing=RoutingSpec(kind="random")),
            RuntimeOptions(routing=RoutingSpec(kind="zipf", alpha=0.6), moe_capacity_factor=1.5),
            RuntimeOptions(moe_capacity_factor=1.3, moe_pad_to_capacity=True),
        ],
        4,
    ),
)
def test_options_of_the_runtime_change_no_proof(make_job, options, memory_gib):
    job = make_job("small-moe", "1x4:h100-sxm", 8).model_copy(update={"options": options})
    assert_best_of_all(job, memory_gib)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 1.6])
@pytest.mark.parametrize("size", ["least", "double", 6])
def test_groups_of_micro_batches_change_no_proof(make_job, size, memory_gib):
    """Of 24 sequences on 4 ranks: 6 micro batches fill no groups of 4."""
    job = make_job("small-dense", "1x4:h100-sxm", 24)
    options = RuntimeOptions(microbatch_group_size=size)
    assert_best_of_all(job.model_copy(update={"options": options}), memory_gib)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 3.6])
@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "muon"},
        {"optimizer": "dist-muon"},
        {"optimizer": "soap"},
        {"optimizer": "lion"},
        {"optimizer": "sgd"},
        {"state_precision": "o2"},
        {"state_precision": "o3"},
    ],
)
def test_another_optimizer_changes_no_proof(make_job, training, memory_gib):
    assert_best_of_all(make_job("small-moe", "1x4:h100-sxm", 8, **training), memory_gib)


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 1.6])
@pytest.mark.parametrize(
    ("case", "precision", "options"),
    [
        (("small-dense", "1x4:h100-sxm", 16, "megatron-lm"), "fp8", {}),
        (("small-dense", "2x2:mi300x", 8, "megatron-lm"), "fp8", {"fp8_param_gather": True}),
        (("small-moe", "2x2:h100-sxm", 8, "megatron-bridge"), "fp8", {}),
        (("small-moe", "1x4:b200", 8, "megatron-lm"), "nvfp4", {"moe_dispatcher": "hybridep"}),
        (("small-dense", "1x4:h100-sxm", 8, "torchtitan"), "fp8", {"overlap_tp_comm": True}),
        (("small-dense", "1x4:h100-sxm", 8, "torchtitan"), "fp8", {"fp8_recipe": "tensorwise"}),
    ],
)
def test_products_in_low_precision_change_no_proof(make_job, case, precision, options, memory_gib):
    *shape, runtime = case
    update = {"runtime": runtime, "options": RuntimeOptions(**options)}
    job = make_job(*shape, precision=precision).model_copy(update=update)
    assert_best_of_all(job, memory_gib)


best_of = cache(partial(search, options=SearchOptions(**EXACT)))
PLAIN = SearchOptions(**EXACT, search_options="none")
"""Under the settings of the job alone."""
plain_best_of = cache(partial(search, options=PLAIN))


@lru_cache(maxsize=1)
def all_priced(job):
    """Every legal layout with its price: the same for any memory, so made once for all of it."""
    table = every_legal_layout(job)
    machine = machine_of(job.cluster, job.training.precision)
    return table, price(context_of(job, machine).with_table(table))


def assert_best_of_all(job, memory_gib):
    """The answer is as fast as the fastest of all legal layouts that fit; none, if none fits.

    Of those with even stages, which brute force lists; `test_free_splits` has the others.
    """
    table, priced = all_priced(job)
    group = job.cluster.groups[0].model_copy(update={"memory_gib": memory_gib})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    machine = machine_of(job.cluster, job.training.precision)
    fits = priced.memory.fits(machine.memory_bytes * (1 - SearchOptions().margin(job)))
    exact = SearchOptions(**EXACT, top=3, search_options="none", fix=EVEN)
    if not fits.any():
        assert not hasattr(search(job, exact.model_copy(update={"only_answer": True})), "best")
        return
    plan = search(job, exact)
    fitting = table.take(fits)
    near = priced.step_seconds[fits] <= plan.best.estimate.step_time_s * (1 + 1e-12)
    assert near.any()
    simulated = step_seconds(context_of(job, machine).with_table(fitting.take(near)))
    assert plan.best.estimate.step_time_s == pytest.approx(simulated.min(), rel=1e-12)
    assert plan.certificate.optimal


@pytest.mark.parametrize("name", ["megatron-lm", "torchtitan", "megatron-zero-bubble"])
def test_a_grid_is_counted_to_the_last_layout(make_job, name):
    job = make_job("small-moe", "1x8:h100-sxm", 16).model_copy(update={"runtime": name})
    space, rules = Space(context_for(job)), rules_of_job(job)
    rule_filter = RuleFilter(job, rules)
    roots = nodes(space, rule_filter)
    assert roots.weight.sum() + sum(rule_filter.refused.values()) == space.size
    rows = skeletons(space, rule_filter, roots.table)
    assert rows.weight.sum() + sum(rule_filter.refused.values()) == space.size
    table, _ = memory_policies(space, rows.table)
    assert len(table) == rows.weight.sum(), "a fraction of the optimizer counts as one choice"


@pytest.mark.parametrize(("model", "cluster", "batch"), JOBS)
def test_the_certificate_adds_up(make_job, model, cluster, batch):
    plan = best_of(make_job(model, cluster, batch))
    proof = plan.certificate
    assert proof.optimal
    assert proof.space_size == proof.bounded + proof.evaluated + sum(plan.refused.values())
    assert proof.relaxed_bound_s <= proof.lower_bound_s <= plan.best.estimate.step_time_s
    assert proof.relaxed_bound_s < plan.best.estimate.step_time_s
    assert proof.evaluated < proof.space_size
    assert proof.gap_fraction == pytest.approx(0.0, abs=1e-12)


def test_a_search_cut_short_says_so_and_its_bound_still_holds(make_job):
    job = make_job("llama3-8b", "2x8:h100-sxm", 64, 4096)
    whole = plain_best_of(job)
    gaps = []
    for steps in range(1, 12, number(2, by_night=1)):
        try:
            cut = search(job, PLAIN, budget=Steps(steps))
        except SpecError as error:
            assert "raise --time-limit" in str(error)
            assert not gaps, "an answer once found stays found"
            continue
        proof, step = cut.certificate, cut.best.estimate.step_time_s
        assert proof.optimal or not proof.alternatives_complete
        assert proof.lower_bound_s <= whole.best.estimate.step_time_s <= step
        assert proof.optimal == (proof.gap_fraction == 0)
        gaps.append(proof.gap_fraction)
    assert gaps
    assert gaps == sorted(gaps, reverse=True), "more time never widens the gap"


def test_no_layout_is_run_twice_however_short_the_time(make_job):
    job = make_job("small-dense", "1x1:h100-sxm", 8, 4096)
    moe = MoeSpec(num_experts=8, num_experts_per_tok=1, moe_intermediate_size=256, moe_layer_freq=3)
    shape = {
        "num_hidden_layers": 5,
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "norm": "layernorm",
        "mlp_bias": True,
        "tie_word_embeddings": True,
        "moe": moe,
        "num_nextn_predict_layers": 1,
    }
    job = job.model_copy(
        update={"model": job.model.model_copy(update=shape), "runtime": "llm-foundry-fsdp"}
    )
    group = job.cluster.groups[0].model_copy(update={"memory_gib": 16.48})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    for steps in range(1, 6):
        plan = search(
            job, SearchOptions(**EXACT, only_answer=True, memory_margin=0.02), budget=Steps(steps)
        )
        assert plan.certificate.bounded >= 0


@pytest.mark.parametrize("cluster", ["1x1:h100-sxm", "1x8:l4"])
def test_a_model_far_too_large_is_refused_however_short_the_time(make_job, cluster):
    job = make_job("llama3.1-405b", cluster, 8)
    with pytest.raises(SpecError, match="raise --time-limit"):
        search(job, SearchOptions(**EXACT), budget=Steps(0))
    for steps in (1, 2, 50):
        try:
            assert not hasattr(search(job, SearchOptions(**EXACT), budget=Steps(steps)), "best")
        except SpecError as error:
            assert "raise --time-limit" in str(error)


def test_the_same_job_gives_the_same_plan_twice(make_job):
    job = make_job("frozen-eyes", "1x2:h100-sxm", 8)
    assert search(job, SearchOptions(**EXACT)) == best_of(job)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_legal_layout_that_fits_beats_the_answer(make_job, data):
    job = make_job("llama3-8b", "2x8:h100-sxm", 64, 4096)
    plan = plain_best_of(job)
    draw = data.draw
    tp, pp, cp = (draw(st.sampled_from([1, 2, 4, 8])) for _ in range(3))
    vpp = draw(st.sampled_from([1, 2, 4])) if pp > 1 else 1
    if tp * pp * cp > 16:
        return
    recompute = draw(st.sampled_from(["none", "selective", "full"]))
    full = recompute == "full"
    layout = Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=16 // (tp * pp * cp),
        vpp=vpp,
        schedule="interleaved" if vpp > 1 else "1f1b",
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        sequence_parallel=draw(st.booleans()),
        micro_batch_size=draw(st.sampled_from([1, 2, 4])),
        recompute=recompute,
        recompute_modules=("mlp",) if recompute == "selective" else (),
        recompute_method=draw(st.sampled_from(["uniform", "block"])) if full else None,
        recompute_num_layers=draw(st.sampled_from([1, 2])) if full else None,
    )
    if broken_rules(job, LayoutTable.of([layout]))[0]:
        return
    priced = estimate(job, layout, memory_margin=plan.memory_margin)
    if priced.memory.fits:
        assert priced.step_time_s >= plan.certificate.lower_bound_s * (1 - 1e-12)
        assert priced.step_time_s >= plan.best.estimate.step_time_s * (1 - 1e-12)


@pytest.mark.parametrize(("model", "cluster", "batch"), JOBS)
def test_estimate_of_the_best_is_its_estimate_and_terms_add_up(make_job, model, cluster, batch):
    job = make_job(model, cluster, batch)
    plan = best_of(job)
    assert (
        estimate(plan.job, plan.best.layout, memory_margin=plan.memory_margin) == plan.best.estimate
    )
    for candidate in plan.candidates:
        terms = astuple(candidate.estimate.terms)
        assert sum(terms) == pytest.approx(candidate.estimate.step_time_s, rel=1e-9)
        assert candidate.estimate.memory.fits


@pytest.mark.parametrize(
    ("text", "excluded"),
    [
        ("tp=2", False),
        ("pp=4", False),
        ("recompute=full", False),
        ("offload=0.5", False),
        ("zero_stage=1", True),
        ("sequence_parallel=true", True),
    ],
)
def test_a_choice_of_the_user_is_kept(make_job, text, excluded):
    job = make_job("small-dense", "1x8:h100-sxm", 16)
    choice = parse_choice(text, excluded=excluded)
    options = {"exclude" if excluded else "fix": (choice,)}
    plan = search(job, PLAIN.model_copy(update=options))
    column = LayoutTable.of([c.layout for c in plan.candidates])
    same = getattr(column, choice.field) == choice.value
    assert not same.any() if excluded else same.all()
    assert plan.best.estimate.step_time_s >= plain_best_of(job).best.estimate.step_time_s


@pytest.mark.parametrize(
    "case",
    [
        ("small-dense", "2x2:h100-sxm", 16, 3, 1),
        ("small-dense", "1x4:h100-sxm", 8, 80, 3),
        ("small-dense", "2x2:h100-sxm", 8, 3, 3),
        ("small-moe", "1x4:h100-sxm", 8, 80, 3),
    ],
)
def test_one_branch_after_the_other_finds_the_best_of_all_and_the_next_best(
    make_job, monkeypatch, case
):
    """By brute force, one of each combination of degrees; a batch would hide an end too early."""
    for name in ("NODES", "SKELETONS", "CLASSES", "SIMULATED"):
        monkeypatch.setattr(f"trainplan.planner.tree.branch_and_bound.{name}_AT_ONCE", 1)
    for name in ("NODES", "CLASSES"):
        monkeypatch.setattr(f"trainplan.planner.tree.branch_and_bound.MOST_{name}", 1)
    model, cluster, batch, memory_gib, top = case
    job = make_job(model, cluster, batch)
    machine, traits = machine_of(job.cluster, "bf16"), traits_of(job)
    memory, many = memory_gib * 2**30 * 0.95, parse_choice("pp=1", excluded=True)
    rules = [*rules_of_grid((many,)), *rules_of_job(job)]
    found = Search(context_of(job, machine), rules, SearchLimits(memory, top)).run(Unlimited())
    answers = step_seconds(Candidates(job, machine, traits, found.finalists))
    table = every_legal_layout(job)
    table = table.take(table.pp > 1)
    priced = price(Candidates(job, machine, traits, table))
    near = priced.step_seconds <= answers.max() * (1 + 1e-12)
    table = table.take(near & (priced.memory.used <= memory))
    seconds = step_seconds(Candidates(job, machine, traits, table))
    variants = Space(context_for(job)).variants(table)
    best = sorted(seconds[variants == one].min() for one in set(variants.tolist()))
    assert answers == pytest.approx(best[:top], rel=1e-12)
