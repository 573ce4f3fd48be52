"""Which attention core a job runs: the runtime's, unless its GPU or an option says another."""

from trainplan.costmodel import catalog
from trainplan.costmodel.job import Job
from trainplan.costmodel.runtimes.traits import AttentionKernel, attention_with

CPU = "cpu"
"""Architecture of a device that is none of a GPU."""
UNFUSED_ARCHITECTURES = frozenset({"volta", "turing", CPU})
"""NVIDIA's before tensor cores of bf16, and CPUs: no fused core of Transformer Engine runs there.

Source: NVIDIA/TransformerEngine `pytorch/attention/dot_product_attention/utils.py`,
get_attention_backend: FlashAttention and FusedAttention are disabled below sm80.
"""


CUDNN_FIRST = frozenset({"blackwell", "rubin"})
"""NVIDIA's for which no torch without the attention of cuDNN in the first place was built."""


def runs_on_cpus(job: Job) -> bool:
    """Has it no GPU?"""
    return any(catalog.device(one).architecture == CPU for one in job.cluster.groups)


def attention_on(job: Job, default: AttentionKernel) -> AttentionKernel:
    """The runtime's core on the GPUs of the job: one too old for a fused core has none.

    FlashAttention-2 of torch is a kernel in Triton on GPUs of AMD, and gives way to that of cuDNN
    on Blackwell. Source: pytorch/pytorch `aten/src/ATen/native/transformers/hip/flash_attn/aot`,
    AOTriton; `cuda/sdp_utils.cpp`, check_prefer_cudnn_attention.
    """
    devices = [catalog.device(one) for one in job.cluster.groups]
    old = any(one.architecture in UNFUSED_ARCHITECTURES for one in devices)
    if default == "flash2" and any(one.vendor == "amd" for one in devices):
        return "triton"
    if default == "flash2" and all(one.architecture in CUDNN_FIRST for one in devices):
        return "flash"
    return "unfused" if old and default == "flash" else default


def attention_of(job: Job, default: AttentionKernel) -> AttentionKernel:
    """The core on the GPUs of the job with its options."""
    return attention_with(attention_on(job, default), job.options.attention)
