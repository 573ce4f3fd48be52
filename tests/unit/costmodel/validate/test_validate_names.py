"""Records that call things by other names, or leave them null."""

import pytest

from tests.unit.costmodel.validate.test_validate_unstated import case, run_of
from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.documents.measured_run import Measured, MeasuredRun
from trainplan.costmodel.layout.layout import stage_specs
from trainplan.costmodel.validate.cases.cases import Skipped, case_of
from trainplan.costmodel.validate.cases.names import schedule_called, windows_called


@pytest.mark.parametrize("name", ["H100-SXM", "NVIDIA H100 80GB HBM3"])
def test_a_gpu_is_priced_under_the_name_its_driver_prints(name):
    other = {"gpu": name, "num_gpus": 8, "gpus_per_node": 8}
    assert case(cluster=other).job.cluster.groups[0].gpu == "h100-sxm"


def test_a_gpu_the_catalog_lacks_is_skipped_with_the_place_to_look():
    found = case_of(run_of(cluster={"gpu": "h100"}))
    assert isinstance(found, Skipped)
    assert found.reason == "gpu_unknown"
    assert "`plan catalog gpus`" in found.detail


def test_a_label_of_a_gpu_the_catalog_lacks_is_priced_for_memory_alone():
    other = {"gpu": "abacus", "memory_gib": 11.0}
    assert not case(cluster=other).timed
    run = run_of(cluster=other).model_copy(update={"measured": Measured(step_time_s=3.0)})
    found = case_of(run)
    assert isinstance(found, Skipped)
    assert found.reason == "gpu_unknown"


def test_nothing_measured_corrects_no_run():
    assert not NOTHING.corrects(run_of(cluster={"gpu": "abacus"}))


@pytest.mark.parametrize(
    ("gpu", "precision"), [("h100-sxm", "tf32"), ("v100-sxm-16gb", "fp32"), ("t4", "fp32")]
)
def test_fp32_is_tf32_where_matrix_units_have_it(gpu, precision):
    found = case(training={"precision": "fp32"}, cluster={"gpu": gpu})
    assert found.job.training.precision == precision


@pytest.mark.parametrize(
    ("stated", "vpp", "schedule"),
    [
        (None, 1, "1f1b"),
        ("1F1B", 2, "interleaved"),
        ("Interleaved1F1B", 2, "interleaved"),
        ("afab", 1, "gpipe"),
        ("GPipe", 1, "gpipe"),
        ("ZBVZeroBubble", 2, "zb-v"),
        ("ZB-H1", 1, "zb-h1"),
        ("a schedule of tomorrow", 1, None),
    ],
)
def test_schedules_are_known_as_their_runtimes_call_them(stated, vpp, schedule):
    assert schedule_called(stated, vpp) == schedule


@pytest.mark.parametrize(
    ("stated", "exchange"), [("all_gather", "all_gather"), ("a2a+p2p", "p2p"), ("a2a", "a2a")]
)
def test_every_exchange_of_context_parallelism_that_megatron_has_is_priced(stated, exchange):
    found = case(layout={"cp": 2, "cp_comm_type": stated})
    assert found.job.options.cp_comm_type == exchange


@pytest.mark.parametrize(
    ("stated", "dispatcher"),
    [("nccl-alltoall", "alltoall"), ("flex", "deepep"), ("hybridep", "hybridep"), ("other", None)],
)
def test_a_dispatcher_that_is_not_known_is_that_of_the_runtime(stated, dispatcher):
    assert case(layout={"moe_dispatcher": stated}).job.options.moe_dispatcher == dispatcher


def hybridep(runtime="megatron-bridge", precision="mxfp8", **layout):
    found = case(
        runtime=runtime,
        training={"precision": precision},
        cluster={"gpu": "b200"},
        layout={"moe_dispatcher": "hybridep", **layout},
    )
    return found.job.options


def test_hybridep_recipes_without_a_graph_are_one_with_the_exchange_beside_compute():
    silent = hybridep()
    assert (silent.cuda_graph, silent.overlap_moe_a2a) == ("full_iteration", True)
    assert hybridep(overlap={"moe_a2a": False}).overlap_moe_a2a is False
    stated = hybridep(cuda_graph="none")
    assert (stated.cuda_graph, stated.overlap_moe_a2a) == ("none", None)
    assert hybridep(runtime="megatron-lm").cuda_graph is None


@pytest.mark.parametrize("precision", ["bf16", "fp8", "nvfp4"])
def test_recipes_in_other_precisions_have_no_graph_of_the_step(precision):
    assert hybridep(precision=precision).cuda_graph is None


@pytest.mark.parametrize(
    ("modules", "graph"),
    [
        (["attn", "moe_router", "moe_preprocess"], "partial"),
        (["moe_router", "moe_preprocess"], "none"),
        (["full_iteration"], "full_iteration"),
    ],
)
def test_a_graph_of_the_router_alone_leaves_the_launches_to_the_host(modules, graph):
    assert case(layout={"cuda_graph": modules}).job.options.cuda_graph == graph


@pytest.mark.parametrize("counted", [(14, 10), (15, 11)])
def test_layers_of_stages_count_the_embedding_and_the_head_or_not(counted):
    found = case(layout={"pp": 2, "layers_per_stage": counted})
    assert found.layout.stages == stage_specs((14, 10))


def test_modules_that_run_again_are_selective_recomputation():
    assert case(layout={"recompute_modules": ("mlp",)}).layout.recompute == "selective"
    none = {"recompute": "none", "recompute_modules": ("mlp",)}
    assert case(layout=none).layout.recompute == "none"


@pytest.mark.parametrize(
    ("stated", "window", "layers"),
    [
        (None, None, 0),
        ("GQA, alternating sliding window 128 / full", 128, 24),
        ("sliding window 1024 on 5 of 6 layers", 1024, 40),
        ("sliding window 512, 5:1", 512, 40),
        ("sliding window 4096 on all layers", 4096, 48),
        ("sliding window 64 on 60 of 48 layers", 64, 48),
        ("full attention", None, 0),
        (24, None, 0),
    ],
)
def test_a_window_is_on_every_other_layer_unless_the_record_says_on_which(stated, window, layers):
    tokens, mixers = windows_called(stated, 48)
    assert (tokens, len(mixers), mixers.count("sliding_attention")) == (window, 48, layers)


@pytest.mark.parametrize(
    "name", ["measured", "use", "strict", "source_group", "evidence", "attention_backend"]
)
def test_a_null_is_what_a_missing_key_is(name):
    record = run_of().model_dump(exclude={name})
    assert MeasuredRun.model_validate(record | {name: None}) == MeasuredRun.model_validate(record)


def test_a_null_inside_a_section_is_what_a_missing_key_is():
    assert run_of(training={"task": None}).training.task == "pretrain"
    assert run_of(model={"name": None}).model.name == "custom"
