"""The nearest published runs, and where an answer leaves what was measured; by hand-made runs."""

from dataclasses import replace

import pytest

from tests.conftest import MODELS
from trainplan.costmodel.architecture.layers import SsmSpec
from trainplan.costmodel.catalog.published import published_runs
from trainplan.costmodel.documents.constants import PublishedRun
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.planner.evidence import evidence_of, unmeasured
from trainplan.planner.evidence.axes import Rows
from trainplan.planner.evidence.distance import SIZES, distance
from trainplan.planner.evidence.envelope import Measurements
from trainplan.planner.evidence.evidence import NEAREST, is_inside
from trainplan.planner.evidence.shape import Setup, shape_of


def job_on(cluster, model="small-dense"):
    return Job(
        model=MODELS[model],
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=parse_cluster(cluster),
    )


JOB = job_on("4x8:h100-sxm")
LAYOUT = Layout(tp=2, pp=4, dp=4)
OWN = shape_of(Setup.of(JOB), LAYOUT)


def run(name="run", error=0.05, **changed):
    return PublishedRun(
        id=name,
        source="somewhere",
        model="some-model",
        global_batch_size=64,
        step_time_s=1.0,
        error_fraction=error,
        shape=replace(OWN, **changed),
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_factor_of_two_counts_one_whichever_way(size):
    other = replace(OWN, **{size: 2 * getattr(OWN, size)})
    assert distance(OWN, other) == distance(other, OWN) == pytest.approx(1)
    four_times = replace(OWN, **{size: 4 * getattr(OWN, size)})
    assert distance(OWN, four_times) == pytest.approx(2)


@pytest.mark.parametrize(
    ("changed", "far"),
    [
        ({}, 0),
        ({"gpu": "h200-sxm"}, 1),
        ({"gpu": "a100-sxm-80gb"}, 2),
        ({"gpu": "of-my-own"}, 2),
        ({"runtime": "nemo"}, 1),
        ({"runtime": "torchtitan"}, 2),
        ({"kind": ("moe",)}, 2),
        ({"kind": ("moe", "mla")}, 4),
        ({"precision": "fp16"}, 0),
        ({"precision": "fp8"}, 1),
        ({"zero_stage": 3}, 1),
        ({"schedule": "interleaved"}, 1),
        ({"recompute": ("full",)}, 1),
        ({"offload_optimizer": 0.5}, 1),
        ({"offload_modules": ("core_attn",)}, 1),
    ],
)
def test_every_thing_that_differs_counts(changed, far):
    assert distance(OWN, replace(OWN, **changed)) == far


def test_a_setting_counts_where_both_have_it():
    graphed = replace(OWN, settings=("attention=flash", "cuda_graph=partial"))
    assert distance(replace(OWN, settings=("cuda_graph=none",)), graphed) == 1
    assert distance(replace(OWN, settings=("moe_dispatcher=deepep",)), graphed) == 0


def test_settings_are_those_the_layout_can_notice():
    experts = job_on("1x8:h100-sxm", "small-moe")
    names = {
        text.split("=")[0] for text in shape_of(Setup.of(experts), Layout(dp=8, ep=4)).settings
    }
    assert {"moe_dispatcher", "overlap_moe_a2a"} <= names
    assert "overlap_tp_comm" not in names
    assert "overlap_tp_comm" in {text.split("=")[0] for text in OWN.settings}
    assert not any(text.startswith("moe") for text in OWN.settings)


def test_the_nearest_runs_come_first_each_shape_once_with_their_errors():
    known = Measurements(
        (
            run("far", tp=16),
            run("older", error=0.3, tp=4),
            run("newer", error=-0.02, tp=4),
            run("same"),
            run("farther", tp=64, pp=64),
        )
    )
    found = evidence_of(JOB, LAYOUT, known)
    assert [one.id for one in found.nearest] == ["same", "newer", "far"]
    assert [one.distance for one in found.nearest] == [0, 1, 3]
    assert found.nearest[1].error_fraction == -0.02
    assert found.nearest[0].layout == "tp 2 pp 4 dp 4 mbs 1"
    assert found.num_runs == 5


def written(known, layout, job=JOB):
    return {one.axis: (one.scope, one.text) for one in evidence_of(job, layout, known).beyond}


def test_an_answer_like_a_run_leaves_nothing():
    assert evidence_of(JOB, LAYOUT, Measurements((run(),))).beyond == ()
    assert is_inside(JOB, LAYOUT, Measurements((run(),)))


@pytest.mark.parametrize(
    ("axis", "layout", "here"),
    [
        ("tp", Layout(tp=4, pp=4, dp=2), 4),
        ("pp", Layout(pp=8, dp=4), 8),
        ("vpp", Layout(tp=2, pp=2, vpp=3, dp=8), 3),
        ("cp", Layout(tp=2, pp=2, cp=2, dp=4), 2),
        ("dp", Layout(tp=2, pp=2, dp=8), 8),
        ("micro_batch_size", Layout(tp=2, pp=4, dp=4, micro_batch_size=2), 2),
    ],
)
def test_a_degree_above_every_run_is_named_with_the_largest(axis, layout, here):
    known = Measurements((run(),))
    scope, text = written(known, layout)[axis]
    largest = 1 if axis in ("vpp", "cp", "micro_batch_size") else getattr(LAYOUT, axis)
    assert (scope, text) == ("any", f"no scored run has {axis} > {largest} (here {here})")
    assert not is_inside(JOB, layout, known)


def test_the_product_of_pp_and_vpp_is_an_axis_of_its_own():
    known = Measurements((run(pp=8, vpp=1), run(pp=2, vpp=4)))
    assert set(written(known, Layout(pp=8, vpp=4, dp=4, schedule="interleaved"))) == {
        "pp * vpp",
        "schedule",
    }


def test_each_axis_is_named_in_the_widest_scope_it_leaves():
    """All runs, then the family of the runtime, then the architecture of the GPU."""
    layout = Layout(tp=8, pp=4, dp=1)
    elsewhere = run(tp=8, runtime="torchtitan", gpu="a100-sxm-80gb")
    kin = run(tp=8, runtime="nemo", gpu="a100-sxm-80gb")
    assert written(Measurements((run(),)), layout)["tp"][0] == "any"
    assert written(Measurements((run(), elsewhere)), layout)["tp"] == (
        "runtime",
        "no scored run on Megatron Core has tp > 2 (here 8)",
    )
    assert written(Measurements((run(), kin)), layout)["tp"] == (
        "gpu",
        "no scored run on hopper GPUs has tp > 2 (here 8)",
    )
    assert "tp" not in written(Measurements((run(), run(tp=8, gpu="h200-sxm"))), layout)


def test_what_the_job_states_and_what_other_gpus_had_make_a_layout_untrusted_too():
    layout = Layout(tp=8, pp=4, dp=1)
    elsewhere = Measurements((run(), run(tp=8, gpu="b200")))
    assert [one.scope for one in evidence_of(JOB, layout, elsewhere).beyond] == ["gpu"]
    assert not is_inside(JOB, layout, elsewhere)
    small = Measurements((run(num_gpus=16, seq_length=512),))
    assert {one.axis for one in evidence_of(JOB, LAYOUT, small).beyond} == {
        "num_gpus",
        "seq_length",
    }
    assert not is_inside(JOB, LAYOUT, small)
    assert {one.axis for one in unmeasured(JOB, small)} == {"num_gpus", "seq_length"}


EXPERTS = job_on("4x8:h100-sxm", "small-moe")


@pytest.mark.parametrize(
    ("layout", "axis", "text"),
    [
        (
            Layout(dp=32, ep=8, micro_batch_size=2),
            "micro_batch_size",
            "no scored run with experts has micro_batch_size > 1 (here 2)",
        ),
        (
            Layout(dp=32, ep=8, zero_stage=3),
            "zero_stage",
            "no scored run with experts has ZeRO-3",
        ),
        (
            Layout(
                dp=32,
                ep=8,
                recompute="full",
                recompute_method="uniform",
                recompute_num_layers=1,
            ),
            "recompute",
            "no scored run with experts has recomputed full",
        ),
        (
            Layout(dp=32, ep=16),
            "ep domains",
            "no scored run has expert parallelism across NVLink domains",
        ),
    ],
)
def test_what_dense_models_measured_is_no_evidence_of_experts(layout, axis, text):
    """Evidence is asked of pairs: every axis beside the kind of model, and ep beside the fabric."""
    own = shape_of(Setup.of(EXPERTS), Layout(dp=32, ep=8))
    routed = replace(run(), shape=own)
    wide = run(dp=32, ep=16, etp=1, micro_batch_size=8, zero_stage=3, recompute=("full",))
    wide = replace(wide, shape=replace(wide.shape, gpu="h100-sxm", ep=1))
    many = replace(routed, shape=replace(own, gpu="gb200", ep=32, settings=own.settings))
    found = evidence_of(EXPERTS, layout, Measurements((routed, wide, many)))
    assert {one.axis: one.text for one in found.beyond}[axis] == text
    assert [one.axis for one in found.beyond if one.axis != "ep"] == [axis]


def test_settings_bind_by_kind_on_an_architecture_and_two_by_two():
    layout = Layout(tp=2, pp=4, dp=4)
    graph = job_on("4x8:h100-sxm").model_copy(
        update={"options": RuntimeOptions(cuda_graph="full_iteration", overlap_tp_comm=True)}
    )
    plain = run(settings=("attention=flash", "overlap_tp_comm=true"))
    on_blackwell = run(gpu="b200", settings=("attention=flash", "cuda_graph=full_iteration"))
    both = "no scored run has cuda_graph=full_iteration with overlap_tp_comm=true"
    found = evidence_of(graph, layout, Measurements((plain, on_blackwell))).beyond
    texts = [both, "no scored run on hopper GPUs has cuda_graph=full_iteration"]
    assert [one.text for one in found] == texts
    here = run(settings=("attention=flash", "cuda_graph=full_iteration"))
    found = evidence_of(graph, layout, Measurements((plain, here))).beyond
    assert [one.text for one in found] == [both]


def test_models_whose_records_count_a_little_otherwise_are_of_one_size():
    own = OWN.parameters
    for count, beyond in ((own * 0.995, False), (own * 0.98, True)):
        texts = written(Measurements((run(parameters=count),)), LAYOUT)
        assert ("parameters" in texts) == beyond


def test_what_has_no_size_is_named_by_its_word():
    known = Measurements((run(recompute=("core_attn",)), run(zero_stage=0)))
    layout = LAYOUT.model_copy(
        update={"recompute": "selective", "recompute_modules": ("core_attn", "mlp")}
    )
    assert written(known, layout)["recompute"][1] == "no scored run has recomputed mlp"
    whole = LAYOUT.model_copy(
        update={"recompute": "full", "recompute_method": "block", "recompute_num_layers": 1}
    )
    assert written(known, whole)["recompute"][1] == "no scored run has recomputed full"
    assert written(known, LAYOUT.model_copy(update={"zero_stage": 3}))["zero_stage"][1] == (
        "no scored run has ZeRO-3"
    )


def test_a_machine_or_a_runtime_nobody_measured_is_said_in_one_line():
    known = Measurements((run(),))
    amd = job_on("4x8:mi300x")
    assert [one.text for one in evidence_of(amd, LAYOUT, known).beyond] == [
        "no scored run is on cdna3 GPUs"
    ]
    two = job_on("4x8:h100-sxm")
    groups = tuple(
        two.cluster.groups[0].model_copy(update={"gpu": gpu, "num_nodes": 2})
        for gpu in ("h100-sxm", "a100-sxm-80gb")
    )
    mixed = two.model_copy(update={"cluster": two.cluster.model_copy(update={"groups": groups})})
    assert [one.text for one in evidence_of(mixed, LAYOUT, known).beyond] == [
        "no scored run is on hopper and ampere GPUs"
    ]
    other = JOB.model_copy(update={"runtime": "nanotron"})
    assert "no scored run is on nanotron" in [
        one.text for one in evidence_of(other, LAYOUT, known).beyond
    ]


def test_the_table_of_the_package_is_small_and_every_run_has_its_own_name():
    runs = published_runs()
    assert len({one.id for one in runs}) == len(runs) > 400
    assert all(one.source and one.step_time_s > 0 for one in runs)
    for one in runs[:: len(runs) // 10]:
        assert distance(one.shape, one.shape) == 0
    assert len(evidence_of(JOB, LAYOUT).nearest) == NEAREST


def test_layers_of_a_mixer_that_no_run_has_are_beyond_what_was_measured():
    ssm = SsmSpec(num_heads=16, head_dim=64, state_size=16)
    model = JOB.model.model_copy(update={"mixer": "mamba", "ssm": ssm})
    on = Setup.of(JOB.model_copy(update={"model": model}))
    assert shape_of(on, LAYOUT).kind == ("mamba",)
    rows = Rows(on, LayoutTable.of([LAYOUT]))
    written = [beyond.text for beyond in Measurements((run(),)).beyond(rows)]
    assert "no scored run has mamba layers" in written
    no_mixer = JOB.model.model_copy(update={"mixer": "none"})
    assert shape_of(Setup.of(JOB.model_copy(update={"model": no_mixer})), LAYOUT).kind == ("dense",)
