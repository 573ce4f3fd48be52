"""Variables the runtime reads besides its arguments."""

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.launch import EnvironmentVariable
from trainplan.planner.runtimes.megatron_lm.write.optimizer import FSDP_STRATEGY


def environment(job: Job, layout: Layout) -> tuple[EnvironmentVariable, ...]:
    """Variables the launch script exports.

    Source: Megatron-LM `megatron/training/arguments.py`, `validate_args`: the number of hardware
    queues is asserted for tp or cp above 1 on GPUs before Blackwell and, the other way round, for
    FSDP.
    """
    queues = _queues(job, layout)
    whole = job.options.cuda_graph == "full_iteration"
    return (
        *((queues,) if queues else ()),
        EnvironmentVariable(
            "PYTORCH_CUDA_ALLOC_CONF",
            "expandable_segments:True" + (f",{REUSES}" if whole else ""),
            "keeps the allocator from losing memory to fragments"
            + (", and to tensors that two streams use while the step is captured" if whole else ""),
        ),
        *((CPU_THREADS,) if layout.offload.optimizer else ()),
        *((OFFLOAD_VERSION,) if layout.offload_modules else ()),
        *((NODE_PRIORITY,) if _prefetches_in_graphs(job, layout) else ()),
        *((GRAPH_BUFFERS,) if job.options.cuda_graph == "partial" else ()),
    )


REUSES = "graph_capture_record_stream_reuse:True"
"""Lets a graph's pool use again, while it is captured, what two streams used: else nothing of it is
before the end of the step, and the pool holds every micro batch.

Source: PyTorch c10 `CUDACachingAllocator.cpp`, needs_events_deferred_until_no_capture;
NVIDIA-NeMo/Megatron-Bridge @067f987d `perf_recipes`, all recipes with one graph of a step.
"""
CPU_THREADS = EnvironmentVariable(
    "OMP_NUM_THREADS",
    "8",
    "torchrun would set 1 and the offloaded optimizer step runs on the CPU; set cores per GPU",
)


OFFLOAD_VERSION = EnvironmentVariable(
    "NVTE_CPU_OFFLOAD_V1",
    "1",
    "Megatron-LM requires it where activations are offloaded: weights would be copied as well",
)


GRAPH_BUFFERS = EnvironmentVariable(
    "NCCL_GRAPH_REGISTER",
    "0",
    "Megatron-LM requires it where graphs of layers meet expandable segments",
)


NODE_PRIORITY = EnvironmentVariable(
    "CUDA_GRAPHS_USE_NODE_PRIORITY",
    "1",
    "Megatron-LM requires it on Blackwell where graphs hold gathers of weights cut beyond tp",
)


def _prefetches_in_graphs(job: Job, layout: Layout) -> bool:
    """Source: Megatron-LM `training/arguments.py:1540`."""
    return (layout.gtp > 1 or layout.egtp > 1) and job.options.cuda_graph not in (None, "none")


def _queues(job: Job, layout: Layout) -> EnvironmentVariable | None:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if layout.zero_stage in FSDP_STRATEGY:
        reason = "Megatron-FSDP refuses 1, with which its communication could not overlap"
        return EnvironmentVariable(name, "8", reason)
    if job.options.overlap_moe_a2a and job.model.moe:
        return EnvironmentVariable(name, "32", "an overlapped expert exchange needs queues")
    if layout.tp > 1 or layout.cp > 1:
        reason = "starts communication before the matrix product it overlaps with"
        return EnvironmentVariable(name, "1", reason)
    return None
