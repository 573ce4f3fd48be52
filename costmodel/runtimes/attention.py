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


def runs_on_cpus(job: Job) -> bool:
    """Has it no GPU?"""
    return any(catalog.device(one).architecture == CPU for one in job.cluster.groups)


def attention_on(job: Job, default: AttentionKernel) -> AttentionKernel:
    """The runtime's core on the GPUs of the job: one too old for a fused core has none."""
    groups = job.cluster.groups
    old = any(catalog.device(one).architecture in UNFUSED_ARCHITECTURES for one in groups)
    return "unfused" if old and default == "flash" else default


def attention_of(job: Job, default: AttentionKernel) -> AttentionKernel:
    """The core on the GPUs of the job with its options."""
    return attention_with(attention_on(job, default), job.options.attention)
