"""The core of attention in 8 bits: its inputs wait in them, its speed is not known."""

import pytest

from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.planner import estimate
from trainplan.planner.questions.setting_notes import setting_notes
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space.choices import broken_rules

LAYOUT = Layout(dp=8, tp=2, sequence_parallel=True, zero_stage=1)


def job(precision="mxfp8", gpu="b200", runtime="megatron-bridge", **options):
    return Job(
        model=preset("llama3-8b"),
        training=TrainingSpec(seq_length=8192, global_batch_size=128, precision=precision),
        cluster=cluster_of(f"2x8:{gpu}"),
        runtime=runtime,
        options=RuntimeOptions(**options),
    )


def layer(**options):
    return blocks(context_for(job(**options)).with_table(LayoutTable.of([LAYOUT]))).layers[0]


def test_queries_keys_and_values_wait_in_a_byte_each_and_are_cast():
    wide, narrow = layer(), layer(fp8_attention=True)
    columns = (32 + 2 * 8) * 128 / 2  # of a tensor rank
    assert wide.saved_bytes - narrow.saved_bytes == pytest.approx(8192 * columns)
    assert narrow.forward.attention == pytest.approx(wide.forward.attention, rel=0.02)
    assert narrow.forward.elementwise > wide.forward.elementwise
    assert narrow.backward.elementwise > wide.backward.elementwise


def test_off_is_as_without_it():
    assert estimate(job(fp8_attention=False), LAYOUT) == estimate(job(), LAYOUT)


@pytest.mark.parametrize(
    ("precision", "options", "layout", "legal"),
    [
        ("mxfp8", {}, {}, True),
        ("nvfp4", {}, {}, True),
        ("fp8", {}, {}, True),
        ("fp8", {"fp8_recipe": "blockwise"}, {}, False),
        ("bf16", {}, {}, False),
        ("mxfp8", {}, {"recompute": "selective", "recompute_modules": ("core_attn",)}, False),
    ],
)
def test_it_follows_the_recipe_of_the_products(precision, options, layout, legal):
    table = LayoutTable.of([LAYOUT.model_copy(update=layout)])
    broken = broken_rules(job(precision, fp8_attention=True, **options), table)[0]
    assert ("narrow_attention_needs_narrow_products" in [one.name for one in broken]) != legal


def test_unmeasured_kernels_of_narrow_attention_are_noted():
    def notes(**values):
        return " ".join(setting_notes(context_for(job(fp8_attention=True, **values))))

    assert "no kernel of attention in 8 bits is measured" in notes()
    assert "DelayedScaling" not in notes()
    assert "DelayedScaling" in notes(precision="fp8", gpu="h100-sxm")
    assert "kernels run on" in notes(precision="fp8", gpu="mi300x")


def test_who_has_no_word_for_it_refuses_it_by_name():
    with pytest.raises(UnsupportedError, match="fp8_attention=true"):
        EXPORTERS["megatron-lm"](job(runtime="megatron-lm", fp8_attention=True), LAYOUT)
    with pytest.raises(SpecError, match="runtime_chooses_fp8_copies"):
        estimate(job("fp8", runtime="torchtitan", fp8_attention=True), LAYOUT)
