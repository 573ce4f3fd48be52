"""Windows of attention against measured kernels, and against sequences as short."""

import pytest

from trainplan.costmodel.blocks.attention.core import attention_part
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.mixers.attended_tokens import kernel_length


@pytest.fixture(name="core")
def seconds_of_the_core(make_job):
    """Of a forward pass of 64 heads of 64, in sequences of some length."""

    def core(gpu, seq_length, micro_batch=1, window=None):
        job = make_job("small-dense", f"1x8:{gpu}")
        heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64}
        mixer = {"mixer": "sliding_attention", "sliding_window": window} if window else {}
        training = job.training.model_copy(update={"seq_length": seq_length})
        model = job.model.model_copy(update={**heads, **mixer})
        job = job.model_copy(update={"model": model, "training": training})
        table = LayoutTable.of([Layout(dp=8, micro_batch_size=micro_batch)])
        part = attention_part(shapes(context_of(job, machine_for(job)).with_table(table)))
        return part.forward.attention[0]

    return core


MEASURED = {
    ("gb200", 4096): 0.304,
    ("gb200", 16384): 0.086,
    ("b200", 4096): 0.303,
    ("b200", 16384): 0.086,
    ("h100-sxm", 4096): 0.292,
    ("h100-sxm", 16384): 0.082,
}
"""Means of the kernels that half lengths are of, 64 heads on 8 of keys, 64 wide, in bf16.

Source: ai-dynamo/aiconfigurator @095f58a5 (Apache-2.0), context_attention_perf of sglang 0.5.14 and
vllm 0.24.0 (FlashAttention-3 on H100); medians over batches.
"""


@pytest.mark.parametrize(("gpu", "seq_length"), MEASURED)
def test_a_window_of_128_saves_what_kernels_save_and_no_more(core, gpu, seq_length):
    share = core(gpu, seq_length, window=128) / core(gpu, seq_length)
    assert share == pytest.approx(MEASURED[gpu, seq_length], rel=0.3)


def test_a_window_wider_than_the_sequence_changes_nothing(core):
    assert core("b200", 4096, window=8192) == pytest.approx(core("b200", 4096))


def test_a_wide_window_runs_as_a_sequence_of_twice_the_keys_a_query_sees(make_job):
    model = make_job("small-dense", "1x8:b200").model
    windowed = model.model_copy(update={"mixer": "sliding_attention", "sliding_window": 1024})
    assert kernel_length(windowed, 65_536) == pytest.approx(2 * 1024 * (1 - 1024 / 2 / 65_536))
    assert kernel_length(model, 65_536) == 65_536
