"""Step times that others measured and published. No constant is tuned to these rows.

The runs on H100 used NeMo or Megatron-Bridge, which run Megatron Core as our `megatron-lm` traits
describe it, but hide tensor-parallel traffic, which these traits do not: estimates lie above.
"""

from dataclasses import dataclass

import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import explicit

TOLERANCE = 0.25
DGXC = "NVIDIA/dgxc-benchmarking"
KORTHIKANTI = "Korthikanti et al., arXiv:2205.05198, table 5"
SC21 = "Narayanan et al., arXiv:2104.04473, table 1: step time from its TFLOP/s a GPU"
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
INTERLEAVED = {"schedule": "interleaved", "sequence_parallel": True}


@dataclass(frozen=True)
class Run:
    model: str
    cluster: str
    seq_length: int
    global_batch_size: int
    layout: Layout
    step_seconds: float
    source: str
    precision: str = "bf16"


RUNS = {
    "llama3.1-8b on 8 H100": Run(
        "llama3.1-8b",
        "1x8:h100-sxm",
        8192,
        128,
        Layout(cp=2, dp=4),
        12.27,
        f"{DGXC}@v25.04.02 llama3.1/README.md",
    ),
    "llama3.1-8b on 128 H100": Run(
        "llama3.1-8b",
        "16x8:h100-sxm",
        8192,
        2048,
        Layout(cp=2, dp=64),
        12.33,
        f"{DGXC}@v25.04.02 llama3.1/README.md",
    ),
    "llama3.1-405b on 576 H100": Run(
        "llama3.1-405b",
        "72x8:h100-sxm",
        8192,
        252,
        Layout(tp=8, pp=9, vpp=7, cp=2, dp=4, **INTERLEAVED),
        17.5,
        f"{DGXC}@v25.03 llama3.1/README_405b.md",
    ),
    "llama3.1-405b on 2304 H100": Run(
        "llama3.1-405b",
        "288x8:h100-sxm",
        8192,
        1008,
        Layout(tp=8, pp=9, vpp=7, cp=2, dp=16, **INTERLEAVED),
        17.7,
        f"{DGXC}@v25.03 llama3.1/README_405b.md",
    ),
    "gpt3-175b on 128 H100": Run(
        "gpt3-175b",
        "16x8:h100-sxm",
        2048,
        256,
        Layout(tp=4, pp=8, vpp=6, dp=4, **INTERLEAVED),
        8.309,
        f"{DGXC}@v25.04.02 nemo_megatron/README_175b.md",
    ),
    "gpt3-175b on 2048 H100": Run(
        "gpt3-175b",
        "256x8:h100-sxm",
        2048,
        4096,
        Layout(tp=4, pp=8, vpp=6, dp=64, **INTERLEAVED),
        8.49,
        f"{DGXC}@v25.04.02 nemo_megatron/README_175b.md",
    ),
    "gpt-oss-120b on 64 H100": Run(
        "gpt-oss-120b",
        "8x8:h100-sxm",
        4096,
        1280,
        Layout(
            pp=4, dp=16, ep=8, recompute="selective", recompute_modules=("layernorm", "moe_act")
        ),
        13.69,
        "NVIDIA-NeMo/Megatron-Bridge@067f987d docs/performance-summary-archive.md line 435",
    ),
    "gpt3-175b on 64 A100, everything recomputed": Run(
        "gpt3-175b",
        "8x8:a100-sxm-80gb",
        2048,
        64,
        Layout(tp=8, pp=8, vpp=3, schedule="interleaved", **FULL),
        18.13,
        KORTHIKANTI,
        "fp16",
    ),
    "gpt3-175b on 64 A100, attention recomputed": Run(
        "gpt3-175b",
        "8x8:a100-sxm-80gb",
        2048,
        64,
        Layout(
            tp=8,
            pp=8,
            vpp=3,
            recompute="selective",
            recompute_modules=("core_attn",),
            **INTERLEAVED,
        ),
        13.75,
        KORTHIKANTI,
        "fp16",
    ),
    "gpt 145.6b on 1536 A100": Run(
        "megatron-145.6b",
        "192x8:a100-sxm-80gb",
        2048,
        2304,
        Layout(
            tp=8,
            pp=8,
            vpp=2,
            dp=24,
            micro_batch_size=2,
            zero_stage=0,
            schedule="interleaved",
            **FULL,
        ),
        24.8,
        SC21,
        "fp16",
    ),
    "gpt 1008b on 3072 A100": Run(
        "megatron-1008b",
        "384x8:a100-sxm-80gb",
        2048,
        3072,
        Layout(tp=8, pp=64, dp=6, zero_stage=0, **FULL),
        102.6,
        SC21,
        "fp16",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_estimate_is_near_the_published_step_time(make_job, name):
    run = RUNS[name]
    job = make_job(
        run.model, run.cluster, run.global_batch_size, run.seq_length, precision=run.precision
    )
    assert run.layout.world_size == job.cluster.num_gpus
    machine = machine_of(job.cluster, job.training.precision)
    (estimate,) = explicit(context_of(job, machine).with_table(LayoutTable.of([run.layout])))
    assert estimate.step_time_s == pytest.approx(run.step_seconds, rel=TOLERANCE), run.source
