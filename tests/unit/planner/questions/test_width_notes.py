"""What is told of widths that kernels do not take as they are."""

import pytest

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.kernel_widths import width_notes

LAYOUT = Layout(dp=8)


@pytest.fixture(name="stated")
def _stated(make_job):
    def notes(layout=LAYOUT, runtime="megatron-lm", attention=None, precision="bf16", **model):
        job = make_job("small-dense", "1x8:h100-sxm", precision=precision)
        update = {
            "model": job.model.model_copy(update=model),
            "runtime": runtime,
            "options": RuntimeOptions(attention=attention),
        }
        job = job.model_copy(update=update)
        priced = estimate(job, layout)
        return list(width_notes(context_for(job), layout, priced)), priced

    return notes


def test_a_model_on_the_grid_is_told_nothing(stated):
    for precision in ("bf16", "fp8"):
        assert stated(precision=precision)[0] == []


def test_a_fused_head_off_the_grid_is_told_with_the_share_of_its_zeros(stated):
    (note,), priced = stated(head_dim=108)
    assert note.startswith("head_dim 108 runs on kernels 128 wide, the rest zeros")
    share = (1 - 108 / 128) * priced.terms.attention / priced.step_time_s
    assert f"at least {share * 100:.1f} % of the step" in note


def test_an_unfused_head_off_the_grid_is_told_where_rows_are_not_aligned(stated):
    (note,), _ = stated(attention="unfused", head_dim=108)
    assert note.startswith("head_dim 108 is no multiple of 8")
    assert stated(attention="unfused", head_dim=104)[0] == []


def test_the_libraries_of_2021_lose_more_by_it(stated):
    def lost(runtime):
        (note,), _ = stated(runtime=runtime, attention="unfused", head_dim=108)
        return float(note.split("at least ")[1].split("%")[0])

    assert lost("megatron-deepspeed") > 5 * lost("megatron-lm")


def test_widths_of_a_rank_are_told_in_the_units_of_the_precision(stated):
    layout = Layout(dp=4, tp=2, sequence_parallel=True)
    assert stated(layout, intermediate_size=4112)[0] == []
    (note,), _ = stated(layout, precision="fp8", intermediate_size=4112)
    assert note.startswith("intermediate_size / tp = 4112 / 2: no multiple of 16")


def test_a_vocabulary_is_told_where_the_runtime_does_not_pad_it(stated):
    odd, sharded = {"vocab_size": 50257}, Layout(dp=8, zero_stage=3)
    assert stated(**odd)[0] == []
    (note,), _ = stated(sharded, runtime="llm-foundry-fsdp", **odd)
    assert note.startswith("vocab_size = 50257: no multiple of 8")
