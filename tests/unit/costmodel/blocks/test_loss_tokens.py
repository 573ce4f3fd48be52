"""A loss on a share of the tokens: what it saves, where the runtime skips the others."""

import numpy as np
import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.model.flops import model_flop_per_step
from trainplan.costmodel.step import price
from trainplan.planner.questions.best_plan import notes
from trainplan.planner.runtimes import EXPORTERS


@pytest.fixture
def job_of(make_job):
    def make(runtime, share, model="llama3-8b"):
        job = make_job(model, "1x8:h100-sxm", 32, 4096, loss_tokens=share)
        return job.model_copy(update={"runtime": runtime})

    return make


def priced(job, **layout):
    table = LayoutTable.of([Layout(dp=8, **layout)])
    return price(context_of(job, machine_of(job.cluster, "bf16")).with_table(table))


def test_logits_that_no_loss_reads_are_not_computed_where_the_runtime_skips_them(job_of):
    whole, half = (priced(job_of("accelerate", share), zero_stage=3) for share in (1.0, 0.5))
    products = half.blocks.head.forward.gemm[0] / whole.blocks.head.forward.gemm[0]
    assert 0.45 < products < 0.6
    assert np.array_equal(half.seconds.layers[0].forward, whole.seconds.layers[0].forward)
    logits = 4096 * 128_256 * whole.traits.kernels.head_bytes_per_logit
    saved = whole.memory.transients[0, 0] - half.memory.transients[0, 0]
    assert saved == pytest.approx(logits / 2, rel=0.01)


def test_megatron_computes_all_of_them_and_says_so(job_of):
    whole, half = (priced(job_of("megatron-lm", share), zero_stage=1) for share in (1.0, 0.5))
    assert half.step_seconds[0] == whole.step_seconds[0]
    assert half.memory.used[0] == whole.memory.used[0]
    assert any("loss_tokens=0.5 changes no step" in note for note in notes(half.job))
    assert not any("loss_tokens" in note for note in notes(whole.job))


def test_model_flops_count_the_projection_of_counted_tokens_alone(job_of):
    whole, half = (job_of("accelerate", share) for share in (1.0, 0.5))
    model, tokens = whole.model, whole.training.tokens_per_step
    saved = model_flop_per_step(whole) - model_flop_per_step(half)
    assert saved == pytest.approx(3 * 2 * model.hidden_size * model.vocab_size * tokens / 2)


@pytest.mark.parametrize("runtime", ["accelerate", "deepspeed"])
def test_the_script_of_hugging_face_is_told_to_skip_them(job_of, runtime):
    config = EXPORTERS[runtime](job_of(runtime, 0.3), Layout(dp=8, zero_stage=3))
    (text,) = (file.text for file in config.files if file.name == "trained.py")
    assert "hidden[:, :-1][counted]" in text
    assert "trained.trained(model)" in " ".join(config.notes)
    with pytest.raises(UnsupportedError, match="capped"):
        EXPORTERS[runtime](job_of(runtime, 0.3, "gemma2-9b"), Layout(dp=8, zero_stage=3))
