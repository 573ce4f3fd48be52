"""Schedules as an axis of layouts: legality, placement, memory, the search and its answer."""

from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.e2e.command import LLAMA, plan
from tests.grids import examples, some_cases
from tests.makespans import makespan_seconds
from trainplan.cli.pages.plan import others_part
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.pipeline.ranks import ranks_of
from trainplan.costmodel.pipeline.stages import decoder_of, rank_classes, stage_layers
from trainplan.costmodel.program.held_activations import peak_activations
from trainplan.costmodel.program.ops import placed
from trainplan.costmodel.runtimes.registry import RUNTIMES, runtime
from trainplan.costmodel.schedules import SCHEDULES, program
from trainplan.costmodel.step import explicit
from trainplan.costmodel.timeline.clock import StageSeconds
from trainplan.costmodel.timeline.cycles import waves
from trainplan.planner.plan.plan import OtherSchedule
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.schedules.other_schedules import other_schedules, under
from trainplan.planner.space import Space, parse_choice
from trainplan.planner.space.choices import broken_rules

V_SHAPED = [name for name in SCHEDULE_NAMES if SCHEDULES[name].placement == "v"]


@pytest.fixture(name="job")
def _job(make_job):
    """A job of several pipelines, on a runtime with many schedules."""
    job = make_job("small-dense", "1x8:h100-sxm", 32)
    return job.model_copy(update={"runtime": "torchtitan"})


def on(job, name):
    return job.model_copy(update={"runtime": name})


def shape_of(name, layers_per_rank=2):
    return max(SCHEDULES[name].least_vpp, min(layers_per_rank, SCHEDULES[name].most_vpp))


def test_every_schedule_of_a_layout_is_in_the_registry():
    assert set(SCHEDULE_NAMES) <= set(SCHEDULES)
    assert len(set(SCHEDULE_NAMES)) == len(SCHEDULE_NAMES)


def test_codes_of_recorded_tables_stay():
    assert SCHEDULE_NAMES[:4] == ("1f1b", "interleaved", "zb-1p", "zb-2p")


def test_every_runtime_runs_1f1b_and_counts_only_its_own_schedules_apart():
    for traits in RUNTIMES.values():
        assert traits.pipeline.schedules[0] == "1f1b"
        assert set(traits.pipeline.schedules) <= set(SCHEDULE_NAMES)
        assert set(traits.pipeline.unsynchronised) <= set(traits.pipeline.schedules)


def test_every_schedule_of_a_layout_is_executed_somewhere():
    executed = {name for traits in RUNTIMES.values() for name in traits.pipeline.schedules}
    assert executed == set(SCHEDULE_NAMES)


@pytest.mark.parametrize("name", V_SHAPED)
@pytest.mark.parametrize("merged", [True, False])
def test_on_a_v_the_first_rank_holds_embedding_and_head(make_job, name, merged):
    job = make_job("small-moe", "1x8:h100-sxm", 32)
    ranks = rank_classes(decoder_of(job), name, (2, 2), 8, merged=merged)
    ends = ranks.embedding + ranks.head + ranks.mtp
    assert ends[ranks.rank == 0].tolist() == [3.0]
    assert (ends[ranks.rank > 0] == 0).all()


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
@examples(3, by_night=20)
@given(pp=st.integers(2, 6), m=st.integers(1, 20), data=st.data())
def test_ranks_hold_the_layers_of_the_stages_their_program_runs(make_job, name, pp, m, data):
    job = make_job("llama3-8b", "1x8:h100-sxm", 32)
    one = SCHEDULES[name]
    vpp = data.draw(st.integers(one.least_vpp, min(3, one.most_vpp)))
    columns = np.array([pp]), np.array([vpp]), np.array([m])
    if any(rule.broken(*columns).any() for rule in one.rules):
        return
    layers = stage_layers(decoder_of(job), pp * vpp).layers
    ranks = rank_classes(decoder_of(job), name, (pp, vpp), m, merged=False)
    home = program(name, pp, vpp, m).rank_of_stage
    own = [layers[home == rank].sum() for rank in range(pp)]
    assert ranks.layers[0].tolist() == own
    assert (home[placed(one.placement, pp, vpp)] == np.arange(pp)[:, None]).all()
    before = [layers[:rank].sum() for rank in range(pp)]
    assert ranks.before[0].tolist() == before


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
@examples(3, by_night=20)
@given(
    pp=st.integers(2, 4),
    m=st.integers(4, 12),
    seed=st.integers(0, 2**32 - 1),
    slower=st.floats(0, 5),
)
def test_a_slower_link_never_helps(name, pp, m, seed, slower):
    one, random = SCHEDULES[name], np.random.default_rng(seed)
    vpp = shape_of(name)
    if any(rule.broken(np.array([pp]), np.array([vpp]), np.array([m])).any() for rule in one.rules):
        return
    forward, sent, weight = random.uniform(0, 1, (3, 1, pp * vpp))
    seconds = StageSeconds(forward, sent + weight, weight)
    fast = random.uniform(0, 1, 1)
    groups = waves(name, pp, vpp, m)
    slow = makespan_seconds(groups, seconds, fast + slower)
    assert makespan_seconds(groups, seconds, fast)[0] <= slow[0]


@pytest.mark.parametrize(
    ("layout", "broken"),
    [
        ({"pp": 2, "vpp": 2, "schedule": "1f1b"}, "1f1b_vpp"),
        ({"pp": 2, "vpp": 3, "schedule": "zb-v"}, "zb_v_vpp"),
        ({"pp": 4, "schedule": "zb-h2", "micro_batch_size": 4}, "zb_h2_shape"),
        ({"pp": 4, "vpp": 2, "schedule": "interleaved", "micro_batch_size": 2}, None),
        ({"pp": 4, "vpp": 2, "schedule": "zb-v", "micro_batch_size": 16}, None),
        ({"pp": 2, "schedule": "zb-1p"}, "runtime_executes_schedule"),
    ],
)
def test_a_schedule_runs_in_its_shapes_only(job, layout, broken):
    dp = 8 // layout["pp"]
    rules = broken_rules(job, LayoutTable.of([Layout(dp=dp, **layout)]))[0]
    assert [rule.name for rule in rules] == ([broken] if broken else [])


def test_whole_groups_of_pp_are_asked_for_by_megatron_only(make_job):
    """10 micro batches on 4 ranks: torch makes 2 groups of 5."""
    job = make_job("small-dense", "1x8:h100-sxm", 20)
    table = LayoutTable.of([Layout(pp=4, dp=2, vpp=2, schedule="interleaved")])
    names = {
        name: {rule.name for rule in broken_rules(on(job, name), table)[0]}
        for name in ("torchtitan", "megatron-lm", "megatron-zero-bubble")
    }
    wanted = {"interleaved_needs_whole_groups"}
    expected = {"torchtitan": set(), "megatron-lm": wanted, "megatron-zero-bubble": wanted}
    assert names == expected


def test_megatron_refuses_uneven_groups_in_its_own_words(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 18)
    with pytest.raises(SpecError, match="interleaved_needs_whole_groups"):
        estimate(job, Layout(pp=4, dp=2, vpp=2, schedule="interleaved"))


def test_the_space_pairs_every_vpp_with_every_schedule_that_runs_it(job):
    space = Space(context_for(job))
    for pp in (2, 4):
        one = space.stagings(pp)
        assert set(zip(one.vpp.tolist(), one.schedule.tolist(), strict=True)) == {
            (vpp, SCHEDULE_NAMES.index(name))
            for vpp in space.virtual_stages(pp)
            for name in space.traits.pipeline.schedules
            if SCHEDULES[name].least_vpp <= vpp <= SCHEDULES[name].most_vpp
        }


def test_one_pipeline_rank_has_one_schedule(job):
    assert set(Space(context_for(job)).stagings(1).schedule) == {0}


def test_zero_stages_that_run_alike_under_a_pipeline_are_one_layout(job):
    assert set(Space(context_for(job)).stagings(2).zero_stage) == {0, 1}
    assert set(Space(context_for(job)).stagings(1).zero_stage) == {0, 1, 2, 3}
    assert set(Space(context_for(on(job, "megatron-lm"))).stagings(2).zero_stage) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", some_cases(runtime("torchtitan").pipeline.schedules, 4))
def test_a_fixed_schedule_is_kept(job, name):
    choices = [f"schedule={name}", "pp=4", f"vpp={shape_of(name)}", "tp=1"]
    fixed = tuple(parse_choice(text, excluded=False) for text in choices)
    answer = search(job, SearchOptions(fix=fixed, top=1))
    assert answer.best.layout.schedule == name
    assert answer.certificate.optimal
    assert estimate(job, answer.best.layout, memory_margin=0.05) == answer.best.estimate


HELD = ("pp=4", "tp=1", "cp=1", "micro_batch_size=1", "recompute=none")


def test_an_excluded_schedule_is_not_chosen(job):
    fixed = tuple(parse_choice(one, excluded=False) for one in HELD)
    free = search(job, SearchOptions(fix=fixed, top=1))
    named = parse_choice(f"schedule={free.best.layout.schedule}", excluded=True)
    answer = search(job, SearchOptions(fix=fixed, exclude=(named,), top=1))
    assert answer.best.layout.schedule != free.best.layout.schedule
    assert answer.best.estimate.step_time_s >= free.best.estimate.step_time_s


def test_a_plan_without_exporter_says_so(job):
    fixed = tuple(parse_choice(one, excluded=False) for one in ("pp=1", "tp=1", "cp=1"))
    notes = {
        name: search(on(job, name), SearchOptions(fix=fixed, top=1)).notes
        for name in ("nemo", "megatron-lm", "torchtitan")
    }
    assert any(note.startswith("no launch files") for note in notes.pop("nemo"))
    assert not any("launch files" in note for some in notes.values() for note in some)


def test_other_schedules_are_those_the_runtime_lacks(make_job):
    job = make_job("llama3-8b", "2x8:h100-sxm", 128)
    machine = machine_of(job.cluster, "bf16")
    layout = Layout(tp=4, pp=4, sequence_parallel=True)
    found = other_schedules(context_of(job, machine), layout, 0.05)
    named = [other.schedule for other in found]
    assert sorted(named) == sorted(set(SCHEDULE_NAMES) - {"1f1b", "interleaved"})
    for other in found:
        assert other.executed_by
        assert other.fits == (other.step_time_s is not None)
        assert "megatron-lm" not in other.executed_by
    times = [other.step_time_s for other in found if other.fits]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("name", "precision", "stage"), [("megatron-lm", "bf16", 1), ("torchtitan", "fp8", 2)]
)
def test_another_schedule_is_priced_as_the_runtime_would_run_it(make_job, name, precision, stage):
    """In fp8 torchtitan scales rows, which costs its products more."""
    job = on(make_job("llama3-8b", "2x8:h100-sxm", 128, precision=precision), name)
    machine = machine_of(job.cluster, precision)
    layout = Layout(tp=4, pp=4, sequence_parallel=True, zero_stage=stage)
    found = [one for one in other_schedules(context_of(job, machine), layout, 0.0) if one.fits]
    assert found
    for other in found:
        table = LayoutTable.of([under(context_of(job, machine), layout, other.schedule)])
        whole = explicit(context_of(job, machine).with_table(table))[0]
        assert other.step_time_s == pytest.approx(whole.step_time_s, rel=1e-12)
        assert other.peak_reserved_bytes == whole.memory.peak_reserved_bytes


def test_orders_that_take_long_to_find_are_left_out(make_job):
    job = make_job("llama3-8b", "2x8:h100-sxm", 16_384)
    machine = machine_of(job.cluster, "bf16")
    layout = Layout(tp=4, pp=4, sequence_parallel=True)
    named = {other.schedule for other in other_schedules(context_of(job, machine), layout, 0.05)}
    assert not {"zb-1p", "zb-2p"} & named
    assert {"zb-h1", "gpipe"} <= named


def test_without_a_pipeline_no_schedule_helps(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32)
    assert (
        other_schedules(context_of(job, machine_of(job.cluster, "bf16")), Layout(dp=8), 0.05) == ()
    )


def test_recomputation_follows_the_virtual_stages(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32)
    full = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 3}
    other = under(
        context_of(job, machine_of(job.cluster, "bf16")), Layout(pp=2, dp=4, **full), "zb-v"
    )
    assert (other.vpp, other.recompute_num_layers) == (2, 2)
    assert not {"recompute_within_stage"} & {
        rule.name for rule in broken_rules(job, LayoutTable.of([other]))[0]
    }


def test_a_runtime_refuses_a_schedule_it_does_not_execute(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32)
    with pytest.raises(SpecError, match="executes no schedule but 1f1b, interleaved"):
        estimate(job, Layout(pp=2, dp=4, vpp=2, schedule="zb-v"))


LAYOUT = "tp=4,pp=4,vpp=2,schedule=zb-v,sequence_parallel=true"


def test_a_named_schedule_is_estimated_where_the_runtime_executes_it():
    document = plan("estimate", *LLAMA, "--runtime", "torchtitan", "--layout", LAYOUT, "--json")
    assert document.json["layout"]["schedule"] == "zb-v"
    page = plan("estimate", *LLAMA, "--runtime", "torchtitan", "--layout", LAYOUT)
    assert "· zb-v ·" in page.out.splitlines()[0]
    refused = plan("estimate", *LLAMA, "--layout", LAYOUT)
    assert refused.code == 2
    assert "executes no schedule but" in " ".join(refused.err.split())


@pytest.mark.parametrize("faster", [True, False])
def test_the_page_names_runtimes_with_faster_schedules_in_three_lines(make_job, faster):
    best = search(make_job("small-dense", "1x8:h100-sxm", 32), SearchOptions(top=1))
    step = best.best.estimate.step_time_s * (0.5 if faster else 1.5)
    shared = {"vpp": 2, "peak_reserved_bytes": 2.0**30, "executed_by": ("torchtitan",)}
    others = [
        *(OtherSchedule(schedule="zb-v", step_time_s=step, fits=True, **shared) for _ in range(3)),
        OtherSchedule(schedule="gpipe", step_time_s=None, fits=False, **shared),
    ]
    parts = list(others_part(best.model_copy(update={"other_schedules": tuple(others)})))
    lines = terminal_text(parts).splitlines()
    assert len(lines) == (3 if faster else 1)
    assert ("50.0 % less; 1.0 GiB; on torchtitan" in lines[-1]) == faster


def test_the_answer_without_a_pipeline_speaks_of_no_other_schedule(make_job):
    best = search(make_job("small-dense", "1x1:h100-sxm", 32), SearchOptions(top=1))
    assert best.best.layout.pp == 1
    assert list(others_part(best)) == []


def terminal_text(parts):
    console = Console(width=100, file=StringIO())
    for part in parts:
        console.print(part)
    return console.file.getvalue()


@pytest.mark.parametrize("schedule", ["interleaved", "zb-h1"])
@pytest.mark.parametrize("microbatches", [8, 10, 12, 15, 20])
def test_groups_larger_than_the_pipeline_are_held_whole(make_job, schedule, microbatches):
    pp, vpp = 4, 4
    ops = program(schedule, pp, vpp, microbatches)
    some = on(make_job("llama3-8b", "1x8:h100-sxm", microbatches), "torchtitan")
    layout = Layout(tp=2, pp=pp, vpp=vpp, schedule=schedule, zero_stage=1)
    ranks = ranks_of(some, LayoutTable.of([layout]), merged=False)
    layers = some.model.num_hidden_layers // (pp * vpp)
    held = sum(held[:, 0] for held in ranks.whole_held)
    np.testing.assert_allclose(held, peak_activations(ops) * layers)
