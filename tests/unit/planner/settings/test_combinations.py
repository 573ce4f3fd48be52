"""Which combinations of settings are tried, and on which layouts."""

import numpy as np
import pytest

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import RUNTIMES, traits_of
from trainplan.costmodel.step import explicit
from trainplan.planner.settings.combinations import combinations, covers
from trainplan.planner.space.choices import broken_rules


@pytest.fixture(scope="module", name="job_of")
def jobs(make_job):
    def job(model="small-moe", cluster="1x8:h100-sxm", runtime="megatron-bridge", **options):
        made = make_job(model, cluster)
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})

    return job


def texts(job, level="safe"):
    on = Context(job, None, traits_of(job))  # of any GPU, priced or not
    return [{value.text for value in one.settings} for one in combinations(on, level)]


def test_none_varies_nothing_and_a_runtime_without_settings_has_none(job_of):
    assert texts(job_of(), "none") == [set()]
    assert texts(job_of("small-dense", runtime="fsdp2"), "all") == [set()]


def test_what_means_nothing_for_a_model_has_no_variants(job_of):
    dense = job_of("small-dense", runtime="megatron-lm")
    tried = set().union(*texts(dense))
    assert tried == {"cuda_graph=full_iteration", "overlap_tp_comm=true"}
    latent = set().union(*texts(job_of(runtime="megatron-lm")))
    assert "overlap_tp_comm=true" not in latent


def test_a_stated_setting_is_held(job_of):
    job = job_of(cuda_graph="partial")
    assert all(
        one.job.options.cuda_graph == "partial" for one in combinations(context_for(job), "all")
    )


def test_stored_precision_is_varied_where_all_is_asked_for(job_of):
    stored = {"moment_dtype=bf16"}
    assert not any(stored <= one for one in texts(job_of()))
    assert any(stored <= one for one in texts(job_of(), "all"))


def test_a_graph_of_the_step_with_experts_is_tried_beside_hybridep_alone(job_of):
    graphed = [one for one in texts(job_of()) if "cuda_graph=full_iteration" in one]
    assert graphed
    assert all("moe_dispatcher=hybridep" in one for one in graphed)
    biased = job_of()
    moe = biased.model.moe.model_copy(update={"expert_bias": True})
    model = biased.model.model_copy(update={"moe": moe})
    biased = biased.model_copy(update={"model": model})
    assert not any("cuda_graph=full_iteration" in one for one in texts(biased))


@pytest.mark.parametrize("graph", ["none", "partial", "full_iteration"])
def test_an_overlapped_exchange_is_tried_with_and_without(job_of, graph):
    tried = combinations(context_for(job_of(cuda_graph=graph, moe_dispatcher="hybridep")), "safe")
    plain = [one for one in tried if one.job.options.overlap_moe_a2a is None]
    assert any(not one.only and not one.covered for one in plain)


def test_an_exchange_without_an_opposite_pass_is_no_faster_and_covers_nothing(job_of):
    """All passes of one micro batch run alone: each waits for its exchange, in graphs too."""
    job = job_of(cuda_graph="full_iteration", moe_dispatcher="hybridep")
    tried = combinations(context_for(job), "safe")
    with_it = next(one for one in tried if one.job.options.overlap_moe_a2a)
    without = next(one for one in tried if one.job.options.overlap_moe_a2a is None)
    batch = job.training.global_batch_size
    table = LayoutTable.of([Layout(ep=2, dp=8, zero_stage=1, micro_batch_size=batch // 8)])
    (overlapped, _), (seconds, _) = (prices(one, table) for one in (with_it, without))
    assert overlapped == pytest.approx(seconds, rel=1e-9)
    assert not covers(with_it, without)
    assert not covers(without, with_it)


@pytest.mark.parametrize(
    ("cluster", "hybridep", "deepep"),
    [
        ("1x8:h100-sxm", True, True),
        ("4x4:gb200", True, False),
        ("1x8:v100-sxm-32gb", False, False),
        ("1x8:l40s", False, False),
        ("1x2:h100-sxm", True, True),
        ("8x1:h100-sxm", False, False),
        ("1x8:h100-pcie", False, False),
        ("1x8:a6000", False, False),
    ],
)
def test_dispatchers_are_tried_on_gpus_they_run_on(job_of, cluster, hybridep, deepep):
    tried = set().union(*texts(job_of(cluster=cluster)))
    assert ("moe_dispatcher=hybridep" in tried, "moe_dispatcher=deepep" in tried) == (
        hybridep,
        deepep,
    )


LAYOUTS = (
    Layout(ep=8, dp=8),
    Layout(ep=1, dp=8),
    Layout(ep=4, dp=4, pp=2),
    Layout(ep=4, dp=4, pp=2, vpp=2, schedule="interleaved"),
    Layout(ep=4, dp=4, tp=2, sequence_parallel=True),
    Layout(ep=8, dp=8, recompute="selective", recompute_modules=("moe",)),
    Layout(ep=8, dp=8, recompute="selective", recompute_modules=("layernorm",)),
    Layout(ep=2, dp=8, recompute="full", recompute_method="uniform", recompute_num_layers=1),
    Layout(cp=2, ep=2, dp=4, zero_stage=1),
)


def prices(one, table):
    """Seconds and bytes of each layout; infinite where a combination does not allow it."""
    found = np.full((2, len(table)), np.inf)
    legal = [row for row, broken in enumerate(broken_rules(one.job, table)) if not broken]
    on = context_for(one.job)
    estimates = explicit(on.with_table(table.take(np.array(legal, dtype=np.int64))))
    found[:, legal] = [
        [estimate.step_time_s for estimate in estimates],
        [estimate.memory.peak_reserved_bytes for estimate in estimates],
    ]
    return found


def searched_and_best(job, level, table):
    """Prices under the combinations that search a layout, and under all of them."""
    best = searched = np.full((2, len(table)), np.inf)
    for one in combinations(context_for(job), level):
        found = prices(one, table)
        best = np.minimum(best, found)
        left = [rule.broken(one.job, table) for rule in one.only]
        skipped = np.any(left, axis=0) if left else np.zeros(len(table), dtype=bool)
        if not one.covered:
            searched = np.minimum(searched, np.where(skipped, np.inf, found))
    return searched, best


@pytest.mark.grid
@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge", "nemo"])
@pytest.mark.parametrize("level", ["safe", "all"])
@pytest.mark.parametrize("routing", ["balanced", "random", "zipf:1"])
def test_every_layout_is_searched_under_settings_as_fast_and_lean_as_any(
    job_of, runtime, level, routing
):
    options = RuntimeOptions.model_validate({"routing": routing})
    job = job_of(runtime=runtime).model_copy(update={"options": options})
    searched, best = searched_and_best(job, level, LayoutTable.of(LAYOUTS))
    assert searched == pytest.approx(best, rel=1e-12)


OTHERS = (
    *({"dp": 8, "zero_stage": zero} for zero in (0, 1, 2, 3)),
    *({"dp": 4, "cp": 2, "zero_stage": zero} for zero in (1, 3)),
    *({"dp": 4, "tp": 2, "zero_stage": zero, "sequence_parallel": True} for zero in (1, 3)),
    *({"dp": 4, "pp": 2, "zero_stage": zero} for zero in (0, 1)),
    *({"dp": 4, "pp": 2, "schedule": schedule} for schedule in ("zb-1p", "zb-2p")),
    {"dp": 4, "pp": 2, "vpp": 3, "schedule": "interleaved", "zero_stage": 1},
    {"dp": 8, "zero_stage": 3, "offload": {"optimizer": 1.0, "parameters": "cpu"}},
    *({"dp": 8, "ep": ep, "zero_stage": 3} for ep in (2, 8)),
)


@pytest.mark.grid
@pytest.mark.parametrize(
    "runtime",
    ["torchtitan", "nanotron", "megatron-deepspeed", "megatron-zero-bubble", "accelerate"],
)
@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_runtimes_of_their_own_search_every_layout_under_their_best_settings(
    job_of, runtime, model
):
    table = LayoutTable.of([Layout(**one) for one in OTHERS])
    searched, best = searched_and_best(job_of(model, runtime=runtime), "all", table)
    assert searched == pytest.approx(best, rel=1e-12)


def test_every_setting_is_an_option_and_names_its_flag():
    for traits in RUNTIMES.values():
        for one in traits.settings:
            options = RuntimeOptions(**{one.name: one.value})
            assert options.arguments()[one.name] == one.text
            assert one.source.startswith("--") or traits.family != "Megatron Core"
