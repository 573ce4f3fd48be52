"""fsdp2: the module of plain PyTorch that `plan export` writes.

Source: `planner/runtimes/fsdp2/train_fsdp2.txt`, that module without its settings.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.fsdp import ALONE, FSDP2
from trainplan.costmodel.runtimes.torch_eager import TORCH_EAGER
from trainplan.costmodel.runtimes.torchtitan import LOGIT_BYTES
from trainplan.costmodel.runtimes.torchtitan_models import unsupported_feature as not_llama
from trainplan.costmodel.runtimes.traits import Communication


def unsupported_feature(model: ModelSpec) -> str | None:
    """The first feature its decoder lacks, as a noun phrase; null: it has all."""
    scaled = model.rope_scaling is not None and model.rope_scaling.rope_type != "llama3"
    lacking = {
        "experts": model.moe is not None,
        "latent attention": model.mla is not None,
        "norms of queries and keys": model.qk_norm != "none",
        "positions scaled in another way than llama3's": scaled,
    }
    found = next((feature for feature, has in lacking.items() if has), None)
    return found or not_llama(model)


@rule(
    "pp cp",
    "fsdp2 cuts batches and matrices, no stages and no sequences: use pp=cp=1",
    "planner/runtimes/fsdp2/train_fsdp2.txt",
    name="fsdp2_cuts_batches_and_matrices",
)
def cuts_batches_and_matrices(job: Job, table: LayoutTable) -> BoolColumn:
    """It has a dimension for replicas and one for tensor parallelism."""
    return np.asarray(table.pp * table.cp > 1)


@rule(
    "tp",
    "fsdp2 needs num_key_value_heads and vocab_size to be multiples of tp: lower tp",
    "torch.distributed.tensor.parallel, ColwiseParallel and loss_parallel",
    name="fsdp2_cuts_evenly",
)
def cuts_evenly(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole key-value heads, and as many rows of the vocabulary on all ranks."""
    model = job.model
    return np.asarray((model.num_key_value_heads % table.tp) + (model.vocab_size % table.tp) > 0)


@rule(
    "tp",
    "compiled layers cut by DTensor were seen to lose gradients (torch 2.13): use tp=1, or leave "
    "compile=true out",
    "measured: tests/oracles/fsdp2_drive.py, tp=2, backend aot_eager: a norm of 2.29, not 2.62",
    name="fsdp2_compiles_without_tp",
)
def compiles_without_tp(job: Job, table: LayoutTable) -> BoolColumn:
    """Layers run uncompiled unless the job asks for it."""
    return np.asarray((table.tp > 1) & (job.options.compile is True))


FSDP2_MODULE = replace(
    FSDP2,
    name="fsdp2",
    version="PyTorch 2.13",
    kernels=replace(FSDP2.kernels, elementwise="eager", head_bytes_per_logit=LOGIT_BYTES),
    communication=Communication(reorders_sequences=True),  # cut_over_tensor_ranks, Shard(1)
    pipeline=ALONE,
    optimizers=(("adamw", "torch.optim.AdamW"), ("adamw8bit", "torchao.optim.AdamW8bit")),
    state_precisions=("o0", "bf16"),
    recompute=replace(FSDP2.recompute, layers="some"),  # RECOMPUTED_LAYERS
    autograd=replace(TORCH_EAGER.autograd, weight_gradients=False),  # those of a layer are FSDP's
    footprint=replace(FSDP2.footprint, keeps_gathered_inputs=True),
    trains_on_cpu=True,
    rules=(cuts_batches_and_matrices, cuts_evenly, compiles_without_tp),
    refuses=unsupported_feature,
)
