"""Activations that wait on the host: bytes and seconds by hand, rules, and text."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.cli.values.layout_text import parse_layout
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.in_transit import LAYERS_IN_TRANSIT
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.step import explicit, price
from trainplan.planner.documents.layout import layout_from_json, layout_json
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice
from trainplan.planner.space.choices import allowed, broken_rules
from trainplan.planner.space.grid import values_outside_grid

ATTENTION = ("core_attn", "attn_proj")
HIDDEN, TOKENS, HEADS, KEYS, HEAD_DIM = 1024, 2048, 16, 4, 64
ROW = 2 * TOKENS * HIDDEN
QUERIES, KEYS_VALUES = 2 * TOKENS * HEADS * HEAD_DIM, 2 * TOKENS * 2 * KEYS * HEAD_DIM
STATISTICS = 4 * TOKENS * HEADS


@pytest.fixture(name="job")
def _job(make_job):
    return make_job("small-dense", "1x1:h100-sxm", global_batch_size=4)


def priced(job, layout, **machine):
    own = replace(machine_of(job.cluster, job.training.precision), **machine)
    return price(context_of(job, own).with_table(LayoutTable.of([layout])))


@pytest.mark.parametrize(
    ("modules", "copied", "freed"),
    [
        ((), 0, 0),
        (("qkv_linear",), 2 * ROW, ROW),
        (
            ("core_attn",),
            2 * QUERIES + KEYS_VALUES + STATISTICS,
            QUERIES + KEYS_VALUES + STATISTICS,
        ),
        (ATTENTION, 3 * QUERIES + KEYS_VALUES + STATISTICS, 2 * QUERIES + KEYS_VALUES + STATISTICS),
    ],
)
def test_a_dense_layer_copies_what_its_modules_keep(job, modules, copied, freed):
    one = priced(job, Layout(offload_modules=modules)).gathered
    plain = priced(job, Layout()).gathered
    assert one.layers[0].copies.copied_bytes[0] == copied
    assert one.layers[0].copies.freed_bytes[0] == freed
    assert plain.layers[0].saved_bytes[0] - one.layers[0].saved_bytes[0] == freed


def test_the_layers_of_experts_copy_the_rows_of_their_tokens(make_job):
    job = make_job("small-moe", "1x1:h100-sxm", global_batch_size=4)
    rows, cut = TOKENS * 4, 512
    layout = Layout(offload_modules=("mlp_norm", "expert_fc1", "moe_act"))
    moe = priced(job, layout).gathered.layers[-1].copies
    dense = priced(make_job("small-dense", "1x1:h100-sxm"), layout).gathered.layers[-1].copies
    assert moe.copied_bytes[0] == ROW + 2 * rows * HIDDEN + 2 * rows * 2 * cut
    assert moe.freed_bytes[0] == moe.copied_bytes[0]
    assert dense.copied_bytes[0] == 0


def test_the_latents_of_mla_leave_with_the_input_of_their_projections(make_job):
    job = make_job("small-moe", "1x1:h100-sxm", global_batch_size=4)
    one = priced(job, Layout(offload_modules=("qkv_linear",))).gathered.layers[-1].copies
    assert one.copied_bytes[0] == ROW + 2 * TOKENS * (2 * 384 + 2 * 128 + 32)
    assert one.freed_bytes[0] == one.copied_bytes[0]


def test_a_pass_takes_as_long_as_its_copy_where_the_link_is_slow(job):
    layout = Layout(offload_modules=ATTENTION)
    copied = 3 * QUERIES + KEYS_VALUES + STATISTICS
    slow = priced(job, layout, host_bytes_per_second=1e6).seconds.layers[0]
    assert slow.forward[0] == slow.backward[0] == copied / 1e6
    fast = priced(job, layout, host_bytes_per_second=1e15, memory_bytes_per_second=1e12)
    plain = priced(job, Layout(), memory_bytes_per_second=1e12)
    added = fast.seconds.layers[0].forward - plain.seconds.layers[0].forward
    assert added[0] == pytest.approx(copied / 1e12)


def test_what_a_pass_waits_for_copies_is_told_as_offload(job):
    machine = replace(machine_of(job.cluster, "bf16"), host_bytes_per_second=1e8)
    layouts = Layout(), Layout(offload_modules=ATTENTION)
    plain, copied = explicit(context_of(job, machine).with_table(LayoutTable.of(layouts)))
    assert plain.terms.offload == 0
    more = copied.step_time_s - plain.step_time_s
    rest = copied.terms.overhead - plain.terms.overhead
    assert copied.terms.offload == pytest.approx(more - rest)


def test_two_layers_are_on_the_device_at_a_time(job):
    layout = Layout(offload_modules=ATTENTION, micro_batch_size=2)
    one = priced(job, layout)
    freed = one.gathered.layers[0].copies.freed_bytes[0]
    assert one.memory.in_transit[0, 0] == LAYERS_IN_TRANSIT * freed
    plain = priced(job, layout.model_copy(update={"offload_modules": ()})).memory
    saved = plain.activations[0, 0] - one.memory.activations[0, 0]
    assert saved == pytest.approx(job.model.num_hidden_layers * freed)


@pytest.mark.parametrize(
    ("model", "layout", "rule"),
    [
        ("small-dense", {"offload_modules": ("expert_fc1",)}, "offload_modules_exist"),
        ("small-dense", {"offload_modules": ("attn_proj",)}, "attn_proj_offloads_with_core"),
        (
            "small-dense",
            {
                "offload_modules": ATTENTION,
                "recompute": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": 1,
            },
            "offloads_what_is_kept",
        ),
        (
            "small-moe",
            {
                "offload_modules": ("moe_act",),
                "recompute": "selective",
                "recompute_modules": ("moe",),
            },
            "offloads_what_is_kept",
        ),
        ("small-dense", {"offload_modules": ATTENTION, "zero_stage": 3}, "offloads_without_fsdp"),
    ],
)
def test_the_runtime_refuses_what_it_cannot_offload(make_job, model, layout, rule):
    job = make_job(model, "1x1:h100-sxm", global_batch_size=4)
    (broken,) = broken_rules(job, LayoutTable.of([Layout(**layout)]))
    assert rule in {one.name for one in broken}


def test_norms_that_stand_alone_are_recomputed_and_their_inputs_offloaded(make_job):
    job = make_job("small-moe", "1x1:h100-sxm", global_batch_size=4)
    layout = Layout(
        offload_modules=(*ATTENTION, "expert_fc1", "moe_act", "mlp_norm"),
        recompute="selective",
        recompute_modules=("layernorm", "moe_act"),
    )
    assert broken_rules(job, LayoutTable.of([layout])) == ((),)


def test_graphs_and_offload_are_not_priced_together(job):
    graphs = job.model_copy(update={"options": RuntimeOptions(cuda_graph="full_iteration")})
    table = LayoutTable.of([Layout(offload_modules=ATTENTION)])
    assert "offloads_without_graphs" in {one.name for one in broken_rules(graphs, table)[0]}
    assert broken_rules(job, table) == ((),)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_without_the_option_refuses_it(job, runtime):
    own = job.model_copy(update={"runtime": runtime})
    (broken,) = broken_rules(own, LayoutTable.of([Layout(offload_modules=ATTENTION)]))
    refused = "runtime_offloads_modules" in {one.name for one in broken}
    methods = ("megatron-dualpipe", "tutel", "fsmoe")  # on the layers of the first two
    assert refused == (runtime not in ("megatron-lm", "megatron-bridge", *methods))


def test_a_layout_comes_back_from_its_text_and_its_document(job):
    layout = Layout(offload_modules=("qkv_linear", *ATTENTION))
    text = f"dp=1,offload_modules={'+'.join(layout.offload_modules)}"
    assert parse_layout(text, job.cluster) == layout
    assert layout_from_json(layout_json(job, layout)) == layout
    assert LayoutTable.of([layout, Layout()]).row(0) == layout


def test_an_unknown_module_is_refused_with_those_there_are(job):
    with pytest.raises(SpecError, match="use qkv_linear, core_attn"):
        parse_layout("offload_modules=mlp", job.cluster)
    with pytest.raises(SpecError, match=r"no module .mlp.; join some of qkv_linear"):
        parse_choice("offload_modules=mlp", excluded=False)


def test_the_option_names_sets_of_modules_in_any_order():
    one = parse_choice("offload_modules=attn_proj+core_attn", excluded=False)
    table = LayoutTable.of([Layout(offload_modules=ATTENTION), Layout()])
    assert one.rule().broken(None, table).tolist() == [False, True]
    none = parse_choice("offload_modules=none", excluded=False)
    assert none.rule().broken(None, table).tolist() == [True, False]
    assert np.array_equal(table.offload_modules, [6, 0])


def test_a_search_offloads_modules_only_where_the_job_allows_it(job):
    assert Space(context_for(job)).axis_values()["offload_modules"] == ["none"]
    for text in ("free", "core_attn+attn_proj"):
        wanted = parse_choice(f"offload_modules={text}", excluded=False)
        space = Space(context_for(allowed(job, [wanted])))
        assert "core_attn+attn_proj" in space.axis_values()["offload_modules"]
        assert not values_outside_grid(space, [wanted])
    some = parse_choice("offload_modules=core_attn", excluded=False)
    (stated,) = values_outside_grid(Space(context_for(allowed(job, [some]))), [some])
    assert "the search tries none, core_attn+attn_proj, qkv_linear+core_attn+attn_proj" in stated
    none = parse_choice("offload_modules=none", excluded=False)
    assert not allowed(job, [none]).may_offload_activations


def test_a_plan_may_offload_where_it_is_asked_to(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", 64, 8192)
    wanted = parse_choice("offload_modules=core_attn+attn_proj", excluded=False)
    even = parse_choice("stages=even", excluded=False)
    plan = search(job, SearchOptions(fix=(wanted, even)))
    assert plan.best.layout.offload_modules == ATTENTION
    assert not search(job, SearchOptions(fix=(even,))).best.layout.offload_modules
