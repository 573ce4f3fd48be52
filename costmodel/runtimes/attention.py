"""Which kernels a job runs: the runtime's, unless its device or an option says others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trainplan.costmodel import catalog
from trainplan.costmodel.runtimes.traits import AttentionKernel, Kernels, attention_with
from trainplan.costmodel.spec import Job

CPU = "cpu"
UNFUSED_ARCHITECTURES = frozenset({"volta", "turing", CPU})
"""NVIDIA's before tensor cores of bf16, and CPUs: no fused core of Transformer Engine runs there.

Source: NVIDIA/TransformerEngine `pytorch/attention/dot_product_attention/utils.py`,
get_attention_backend: FlashAttention and FusedAttention are disabled below sm80; NVIDIA/Megatron-LM
core_v0.16.1 `megatron/core/models/backends.py`, LocalSpecProvider: layers without Transformer
Engine compute attention in single operations.
"""


def kernels_on(architectures: Collection[str], default: Kernels) -> Kernels:
    """A runtime's kernels on devices of these architectures; on a CPU none is of the engine."""
    plain = CPU in architectures and default.attention == "flash"
    return replace(
        default,
        attention=core_on(architectures, default.attention),
        elementwise="eager" if plain else default.elementwise,
    )


def core_on(architectures: Collection[str], default: AttentionKernel) -> AttentionKernel:
    """A runtime's core on devices of these architectures: one too old for a fused core has none."""
    old = not UNFUSED_ARCHITECTURES.isdisjoint(architectures)
    return "unfused" if old and default == "flash" else default


def architectures_of(job: Job) -> frozenset[str]:
    """Of the devices of a job."""
    return frozenset(catalog.device(one).architecture for one in job.cluster.groups)


def attention_on(job: Job, default: AttentionKernel) -> AttentionKernel:
    """The runtime's core on the devices of the job."""
    return core_on(architectures_of(job), default)


def attention_of(job: Job, default: AttentionKernel) -> AttentionKernel:
    """The core on the GPUs of the job with its options."""
    return attention_with(attention_on(job, default), job.options.attention)
