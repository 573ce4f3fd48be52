"""The zero-bubble fork: the options of an older Megatron-LM and those of its schedules."""

import pytest

from tests import megatron_jobs as models
from tests.megatron_jobs import flags, values
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags

PLAIN = models.DENSE


def exported(model=PLAIN, precision="bf16", options=None, **layout):
    used = layout.get("tp", 1) * layout.get("pp", 1)
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=2048, global_batch_size=64, precision=precision),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="megatron-zero-bubble",
        options=RuntimeOptions(**(options or {})),
    )
    return EXPORTERS["megatron-zero-bubble"](job, Layout(**{"dp": 8 // used} | layout))


@pytest.mark.parametrize(
    ("schedule", "vpp", "expected"),
    [
        ("zb-1p", 1, {"--enable-zero-bubble": (), "--zero-bubble-max-pending-backward": ("4",)}),
        ("zb-2p", 1, {"--enable-zero-bubble": (), "--zero-bubble-max-pending-backward": ("8",)}),
        ("zb-v", 2, {"--zero-bubble-v-schedule-mem-setup": ("zb",)}),
        ("v-half", 2, {"--zero-bubble-v-schedule-mem-setup": ("half",)}),
        ("v-min", 2, {"--zero-bubble-v-schedule-mem-setup": ("min",)}),
        ("interleaved", 2, {"--num-layers-per-virtual-pipeline-stage": ("4",)}),
        ("1f1b", 1, {"--no-pre-communication-optimization": ()}),
    ],
)
def test_every_schedule_of_the_fork_is_written(schedule, vpp, expected):
    config = exported(pp=4, vpp=vpp, schedule=schedule)
    assert {flag: values(config, flag) for flag in expected} == expected
    own_runtime = schedule not in ("1f1b", "interleaved")
    assert ("--enable-zb-runtime" in flags(config)) == own_runtime
    assert missing_flags(config, recorded_flags("megatron-zero-bubble")) == ()


def test_a_v_says_nothing_of_virtual_stages():
    written = flags(exported(pp=4, vpp=2, schedule="zb-v"))
    assert not [flag for flag in written if "virtual" in flag]
    assert {"--use-legacy-models", "--transformer-impl"} <= written


def test_the_optimizer_is_validated_afterwards_under_fp16_alone():
    for precision in ("bf16", "fp16"):
        config = exported(precision=precision, pp=4, schedule="zb-1p")
        post = "--enable-optimizer-post-validation" in flags(config)
        assert post == (precision == "fp16")
        assert any("waits for all ranks" in note for note in config.notes) != post


def test_its_runtime_has_eight_queues():
    queues = {one.name: one.value for one in exported(tp=2, pp=4, schedule="zb-1p").environment}
    assert queues["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"


@pytest.mark.parametrize(
    ("stages", "vpp", "schedule"),
    [((7, 8, 8, 7), 1, "1f1b"), ((3, 4, 4, 4, 4, 4, 4, 3), 2, "zb-v")],
)
def test_ends_with_a_layer_less_are_padded(stages, vpp, schedule):
    model = PLAIN.model_copy(update={"num_hidden_layers": 30})
    config = exported(model, pp=4, vpp=vpp, schedule=schedule, stages=stage_specs(stages))
    assert values(config, "--num-layers") == ("30",)
    assert "--allow-padding-num-layers" in flags(config)


def test_other_uneven_stages_are_refused_with_those_it_has():
    with pytest.raises(UnsupportedError, match="evenly, or with one layer less at the last"):
        exported(pp=4, stages=stage_specs((9, 8, 8, 7)))


@pytest.mark.parametrize(
    ("model", "layout", "options", "what"),
    [
        (models.MIXTRAL, {}, {}, "experts"),
        (PLAIN.model_copy(update={"tie_word_embeddings": True}), {}, {}, "tied embeddings"),
        (PLAIN.model_copy(update={"qk_norm": "head"}), {}, {}, "norms on queries"),
        (PLAIN, {"schedule": "zb-1p"}, {}, "without a pipeline"),
        (PLAIN, {"cp": 2, "dp": 4}, {}, "no option for cp"),
        (PLAIN, {"zero_stage": 3}, {}, "older than --use-megatron-fsdp"),
        (PLAIN, {}, {"gradient_dtype": "bf16"}, "older than --grad-reduce-in-bf16"),
        (PLAIN, {}, {"cuda_graph": "full_iteration"}, "older than --cuda-graph-impl"),
        (PLAIN, {}, {"overlap_tp_comm": True}, "overlap_tp_comm"),
        (
            PLAIN,
            {"recompute": "selective", "recompute_modules": ("mlp",)},
            {},
            "recompute_modules",
        ),
        (
            PLAIN,
            {"pp": 4, "schedule": "zb-1p"},
            {"overlap_grad_reduce": True},
            "overlapped reductions",
        ),
    ],
)
def test_what_the_fork_lacks_is_refused_by_name(model, layout, options, what):
    with pytest.raises(UnsupportedError, match=what):
        exported(model, options=options, **layout)
