"""Bytes of optimizer state on ranks, and what a level of FP8-LM stores, against hand-made sums."""

import numpy as np
import pytest

from tests.conftest import legal, random_rows
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import block_params, rank_params
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.runtimes.registry import RUNTIMES, runtime_with, traits_of
from trainplan.costmodel.shard_groups import groups_of
from trainplan.costmodel.step import price
from trainplan.planner.space import Space
from trainplan.planner.space.choices import broken_rules, rules_of_job
from trainplan.planner.tree.memory_bounds import skeleton_bytes, states_bytes


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(optimizer, model="llama3-8b", cluster="1x8:h100-sxm", runtime=None, **training):
        made = make_job(
            model, cluster, global_batch_size=64, seq_length=2048, optimizer=optimizer, **training
        )
        return made.model_copy(update={"runtime": runtime or runtime_with(made.training)})

    return job


def priced(job, *layouts):
    machine = machine_of(job.cluster, job.training.precision)
    return price(Candidates(job, machine, traits_of(job), LayoutTable.of([*layouts])), merged=False)


LLAMA = {
    "hidden": 6_979_321_856 / 32,
    "ends": 2 * 128_256 * 4096,
    "vectors": 65 * 4096,
}
"""Parameters of Llama 3 8B: of a layer's matrices, of tables at the ends, of norms."""


def test_the_parts_are_the_model(make_job):
    whole = 32 * LLAMA["hidden"] + LLAMA["ends"] + LLAMA["vectors"]
    assert whole == num_parameters(make_job("llama3-8b", "1x8:h100-sxm").model)


def test_muon_keeps_one_moment_of_matrices_and_two_of_all_else(job_of):
    """And an fp32 copy of every weight; one rank holds all where nothing is sharded."""
    memory = priced(job_of("muon"), Layout(dp=8, zero_stage=0)).memory
    expected = 8 * 32 * LLAMA["hidden"] + 12 * (LLAMA["ends"] + LLAMA["vectors"])
    assert memory.optimizer[0, 0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("optimizer", ["muon", "soap", "lion", "dist-muon"])
def test_replicas_share_the_states_of_every_optimizer(job_of, optimizer):
    job = job_of(optimizer)
    whole = priced(job, Layout(dp=8, zero_stage=0)).memory.optimizer[0, 0]
    shared = priced(job, Layout(dp=8, zero_stage=1)).memory.optimizer[0, 0]
    assert shared == pytest.approx(whole / 8)


def test_experts_are_shared_by_their_own_replicas(job_of):
    """Of 4 expert ranks in 8 replicas each expert has 2 copies."""
    job = job_of("muon", model="small-moe")
    table = LayoutTable.of([Layout(dp=8, ep=4, zero_stage=1)])
    params = block_params(job, table)
    assert groups_of(table)[0].optimizer == 8
    found = priced(job, Layout(dp=8, ep=4, zero_stage=1))
    held = rank_params(found.ranks, params)
    whole = priced(job, Layout(dp=8, ep=4, zero_stage=0)).memory.optimizer[0, 0]
    expert = 8 * held.expert[0, 0]  # a master and one moment: experts are matrices alone
    expected = (whole - expert) / 8 + expert / 2
    assert found.memory.optimizer[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize("zero_stage", [0, 1])
@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge"])
def test_adamw_costs_what_it_cost(job_of, runtime, zero_stage):
    """12 bytes a parameter, to the bit."""
    layout = Layout(dp=2, tp=4, sequence_parallel=True, zero_stage=zero_stage)
    found = priced(job_of("adamw", runtime=runtime), layout)
    held = rank_params(found.ranks, found.params)
    share = 2 if zero_stage else 1
    assert found.memory.optimizer[0, 0] == held.shared[0, 0] * (12 / share)


def test_low_rank_optimizers_keep_no_fp32_copy_and_gradients_of_16_bits(job_of):
    """2 bytes a gradient, none of a master; moments of the ends in 2 bytes each."""
    job = job_of("galore:rank=128,update=step", cluster="1x1:b200")
    memory = priced(job, Layout()).memory
    params = sum(LLAMA.values()) + 31 * LLAMA["hidden"]
    assert memory.gradients[0, 0] == 2 * params
    rank = 128
    pairs = [(4096, 4096)] * 2 + [(1024, 4096)] * 2 + [(4096, 14_336)] * 3
    layer = sum(2 * rank * (m + 2 * n) for m, n in pairs)
    expected = 32 * layer + 4 * (LLAMA["ends"] + LLAMA["vectors"])
    assert memory.optimizer[0, 0] == pytest.approx(expected, rel=1e-12)


def test_a_layer_that_is_updated_by_itself_leaves_one_gradient(job_of):
    """The larger of a layer and a table at an end, in 16 bits."""
    by_layer, by_step = (
        priced(
            job_of(f"galore:rank=128{end}", cluster="1x1:b200"),
            Layout(micro_batch_size=64, recompute="full", recompute_method="uniform",
                   recompute_num_layers=1),
        ).memory
        for end in ("", ",update=step")
    )  # fmt: skip
    assert by_layer.gradients[0, 0] == 0
    table = 128_256 * 4096
    assert table > LLAMA["hidden"]
    kept = by_layer.transients[0, 0] - by_step.transients[0, 0]
    assert kept == pytest.approx(2 * (table + 4096), rel=1e-6)


@pytest.mark.parametrize(
    ("level", "weight", "gradient", "rest"),
    [("o1", 2, 1, 8), ("o2", 2, 1, 3), ("o3", 1, 1, 5)],
)
def test_levels_of_fp8_lm_store_what_their_table_says(job_of, level, weight, gradient, rest):
    """Tables at the ends keep weights of 2 bytes, gradients and masters of 4."""
    job = job_of("adamw", state_precision=level)
    memory = priced(job, Layout(dp=8, zero_stage=0)).memory
    layers, ends = 32 * LLAMA["hidden"] + 64 * 4096, LLAMA["ends"] + 4096
    master = {"o3": 2}.get(level, 0)
    wide = ends * (2 - weight + 4 - gradient + 4 - master)
    assert memory.weights[0, 0] == weight * (layers + ends) + wide
    assert memory.gradients[0, 0] == gradient * (layers + ends)
    assert memory.optimizer[0, 0] == rest * (layers + ends)


@pytest.mark.parametrize(
    ("runtime", "optimizer", "layout", "expected"),
    [
        ("accelerate", "adamw", {"zero_stage": 3}, 8 / 8),
        ("accelerate", "adamw", {"zero_stage": 2}, 2 + 8 / 8),  # weights stay gathered
        ("fsdp2", "adamw", {"zero_stage": 3}, 8 / 8),
        ("torchtitan", "adamw", {"zero_stage": 3}, 8 / 8),
        ("torch-eager", "adamw", {"zero_stage": 0}, 8),
        ("nanotron", "adamw", {"zero_stage": 0}, 8),
        ("maxtext", "adamw", {"zero_stage": 3}, 8 / 8),
        ("torch-eager", "lion", {"zero_stage": 0}, 6),
        ("deepspeed", "adamw", {"zero_stage": 3}, 10 / 8),  # its master is a copy
        ("deepspeed", "adamw", {"zero_stage": 1}, 4 + 6 / 8),
    ],
)
def test_everything_in_bf16_takes_8_bytes_a_parameter(job_of, runtime, optimizer, layout, expected):
    """Of AdamW: a weight, a gradient, two moments, and no copy in fp32."""
    job = job_of(optimizer, runtime=runtime, state_precision="bf16")
    memory = priced(job, Layout(dp=8, **layout)).memory
    states = (memory.weights + memory.gradients + memory.optimizer)[0, 0]
    assert states == pytest.approx(expected * num_parameters(job.model), rel=1e-9)


def test_everything_in_bf16_with_moments_in_8_bits(job_of):
    """A byte for each moment and a scale of 4 for 256 of them."""
    job = job_of("adamw8bit", runtime="fsdp2", state_precision="bf16")
    memory = priced(job, Layout(dp=8, zero_stage=3)).memory
    states = (memory.weights + memory.gradients + memory.optimizer)[0, 0]
    expected = (2 + 2 + 2 * (1 + 4 / 256)) / 8 * num_parameters(job.model)
    assert states == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("runtime", "training", "options", "says"),
    [
        ("accelerate", {}, {},
         "weights, gradients and moments in fp32 with bf16 copies: assumed, accelerate's default"),
        ("deepspeed", {}, {},
         "weights and moments in fp32 with bf16 copies, gradients in bf16: assumed, "
         "deepspeed's default"),
        ("accelerate", {"state_precision": "bf16"}, {}, "weights, gradients and moments in bf16"),
        ("accelerate", {"precision": "tf32"}, {},
         "weights, gradients and moments in fp32: assumed, accelerate's default"),
        ("megatron-lm", {}, {"moment_dtype": "bf16"},
         "weights and gradients in fp32 with bf16 copies, moments in bf16"),
        ("megatron-lm", {"state_precision": "o2"}, {},
         "weights in bf16, gradients in fp8, moments in fp8 and fp16"),
        ("accelerate", {"optimizer": "adamw8bit", "state_precision": "bf16"}, {},
         "weights and gradients in bf16"),
    ],
)  # fmt: skip
def test_an_answer_names_what_states_are_kept_in(make_job, runtime, training, options, says):
    job = make_job("llama3-8b", "1x8:h100-sxm", **training)
    job = job.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})
    assert traits_of(job).states_text(job) == says


@pytest.mark.parametrize(
    ("runtime", "method", "says"),
    [
        ("accelerate", "lora",
         "frozen weights in bf16; trained: weights, gradients and moments in fp32 with bf16 "
         "copies: assumed, accelerate's default; at ZeRO-0 weights and gradients in bf16"),
        ("deepspeed", "qlora",
         "frozen weights in 4 bits; trained: weights and moments in fp32 with bf16 copies, "
         "gradients in bf16: assumed, deepspeed's default"),
    ],
)  # fmt: skip
def test_an_answer_names_what_frozen_weights_are_kept_in(make_job, runtime, method, says):
    job = make_job("llama3-8b", "1x8:h100-sxm")
    trained = {"method": method, "rank": 8, "modules": ("all",)}
    model = type(job.model).model_validate({**dict(job.model), "trained": trained})
    job = job.model_copy(update={"runtime": runtime, "model": model})
    assert traits_of(job).states_text(job) == says


@pytest.mark.parametrize(
    ("training", "options", "says"),
    [
        ({"optimizer": "galore:rank=8"}, {},
         "megatron-lm has no optimizer galore: use --runtime torch-eager or transformers, or one"),
        ({"optimizer": "muon", "state_precision": "o2"}, {}, "o2 is of AdamW"),
        ({"state_precision": "o2", "precision": "tf32"}, {}, "the precision is tf32"),
        ({"state_precision": "o2"}, {"moment_dtype": "bf16"}, "sets moment_dtype: leave"),
        ({"state_precision": "bf16"}, {}, "megatron-lm stores no states at bf16: use --runtime"),
        ({"optimizer": "lion"}, {"moment_dtype": "bf16"}, "moment_dtype is of AdamW"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_said_in_one_line(make_job, training, options, says):
    job = make_job("llama3-8b", "1x8:h100-sxm", **training)
    job = job.model_copy(update={"options": RuntimeOptions(**options)})
    with pytest.raises(UnsupportedError) as refused:
        traits_of(job)
    assert says in str(refused.value)


def test_a_runtime_without_levels_of_fp8_lm_names_one_that_has_them(job_of):
    with pytest.raises(UnsupportedError, match=r"deepspeed stores no states at o2: .*megatron-lm"):
        traits_of(job_of("adamw", runtime="deepspeed", state_precision="o2"))


@pytest.mark.parametrize(
    ("optimizer", "layout", "rule"),
    [
        ("muon", {"dp": 8, "zero_stage": 2}, "whole_matrices_are_sharded_once"),
        ("dist-muon", {"dp": 8, "zero_stage": 0}, "matrices_are_shared_out"),
        ("muon", {"dp": 8, "zero_stage": 1, "dp_replicate": 2},
         "whole_matrices_over_all_replicas"),
        ("lion", {"dp": 8, "zero_stage": 1, "offload": {"optimizer": 0.5}}, "host_updates_adam"),
        ("sgd", {"dp": 8, "zero_stage": 1}, "sgd_is_whole"),
        ("soap", {"dp": 8, "zero_stage": 3}, "emerging_optimizers_are_bf16"),
        ("galore:rank=8,update=layer", {"dp": 8, "zero_stage": 0}, "layers_update_alone"),
    ],
)  # fmt: skip
def test_what_an_optimizer_asks_of_a_layout(job_of, optimizer, layout, rule):
    job = job_of(optimizer)
    table = LayoutTable.of([Layout.model_validate(layout)])
    assert rule in {one.name for one in broken_rules(job, table)[0]}


@pytest.mark.parametrize(
    ("layout", "rule"),
    [
        ({"dp": 8, "zero_stage": 2}, "levels_shard_once"),
        ({"dp": 8, "zero_stage": 1, "offload": {"optimizer": 0.5}}, "levels_stay_on_the_device"),
    ],
)
def test_what_a_level_of_fp8_lm_asks_of_a_layout(job_of, layout, rule):
    table = LayoutTable.of([Layout.model_validate(layout)])
    found, usual = (
        {one.name for one in broken_rules(job_of("adamw", state_precision=level), table)[0]}
        for level in ("o2", "o0")
    )
    assert rule in found
    assert rule not in usual


def test_a_layer_updates_itself_after_one_micro_batch(job_of):
    job = job_of("galore:rank=8", cluster="1x1:h100-sxm")
    table = LayoutTable.of([Layout(micro_batch_size=32), Layout(micro_batch_size=64)])
    several, one = ({rule.name for rule in broken} for broken in broken_rules(job, table))
    assert "layers_update_alone" in several
    assert "layers_update_alone" not in one


def test_fp16_runs_no_optimizer_of_the_package(job_of):
    job = job_of("muon", precision="fp16", runtime="megatron-lm")
    broken = broken_rules(job, LayoutTable.of([Layout(dp=8)]))[0]
    assert "emerging_optimizers_are_bf16" in {rule.name for rule in broken}


@pytest.mark.parametrize("optimizer", ["muon", "soap", "lion", "adafactor", "galore8bit:rank=64"])
@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_no_layout_takes_less_memory_than_its_bound(job_of, optimizer, model):
    """What a search discards by its states could not have fitted."""
    job = job_of(optimizer, model=model, cluster="1x8:h100-sxm")
    space, machine = Space(context_for(job)), machine_of(job.cluster, job.training.precision)
    rules = rules_of_job(job)
    table = random_rows(job, 400, np.random.default_rng(3))
    rows = legal(job, table)
    if len(rows) == 0:
        rows = LayoutTable.of([Layout(dp=8)])
    used = price(Candidates(job, machine, traits_of(job), rows)).memory.used
    for bound in (states_bytes, skeleton_bytes):
        assert (bound(space, rules, rows) <= used * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", [n for n, t in RUNTIMES.items() if "o2" in t.state_precisions])
def test_a_level_gathers_weights_and_reduces_gradients_in_fewer_bytes(make_job, name):
    job = make_job("llama3-8b", "1x8:h100-sxm", state_precision="o3")
    traits = traits_of(job.model_copy(update={"runtime": name}))
    assert traits.gradients.message_bytes == 1
    assert traits.sharding.weight_message_bytes == 1


def test_llama2_7b_trains_on_24_gib_with_galore_and_not_with_adamw(make_job):
    """And not where gradients of all layers wait for the step."""
    fits = []
    whole = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    for optimizer in ("galore8bit:rank=1024", "galore8bit:rank=1024,update=step", "adamw"):
        job = make_job("llama2-7b", "1x1:rtx4090", 16, 256, optimizer=optimizer)
        job = job.model_copy(update={"runtime": "torch-eager"})
        memory = priced(job, Layout(micro_batch_size=16, **whole)).memory
        fits.append(bool(memory.used[0] <= 24 * GIB))
    assert fits == [True, False, False]


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_the_fullest_replica_owns_up_to_one_matrix_more(job_of, zero_stage):
    """The largest of Llama 3 8B is 4096 x 14336: 8 bytes each under Muon, 7 of 8 of it."""
    layout = Layout(dp=8, zero_stage=zero_stage)
    muon, adamw = (
        priced(job_of(name, runtime="megatron-lm"), layout).memory.transients[0, 0]
        for name in ("muon", "adamw")
    )
    assert muon - adamw == pytest.approx(zero_stage * 8 * 4096 * 14_336 * 7 / 8)


def test_experts_have_a_largest_matrix_of_their_own(job_of):
    """8 replicas of the shared part, 2 of an expert of 1024 x 512."""
    job = job_of("muon", model="small-moe", runtime="megatron-lm")
    layout = Layout(dp=8, ep=4, zero_stage=1)
    usual = job_of("adamw", model="small-moe", runtime="megatron-lm")
    found = [priced(one, layout).memory.transients[:, 0].max() for one in (job, usual)]
    shared, expert = 1024 * 4096, 1024 * 512
    assert found[0] - found[1] == pytest.approx(8 * (shared * 7 / 8 + expert / 2))


@pytest.mark.parametrize(("states", "moment"), [("bf16", 2), ("o0", 4)])
def test_an_update_of_lists_has_a_copy_of_a_moment_when_no_activation_lives(job_of, states, moment):
    """The states and the copy are the peak where a micro batch is short."""
    job = job_of("adamw", cluster="1x1:h100-sxm", runtime="accelerate", state_precision=states)
    job = job.model_copy(
        update={
            "training": job.training.model_copy(update={"seq_length": 16}),
            "options": RuntimeOptions(fused_optimizer=False),
        }
    )
    memory = priced(job, Layout(dp=1, zero_stage=3)).memory
    kept = (memory.weights + memory.gradients + memory.optimizer)[0, 0]
    assert memory.allocated[0, 0] - kept == pytest.approx(moment * num_parameters(job.model))
