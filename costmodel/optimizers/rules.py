"""What an optimizer asks of a layout."""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.optimizers.registry import optimizer_of, updates_by_layer


@rule(
    "zero_stage",
    "the optimizer reads whole matrices, which ranks share out between steps alone: use "
    "zero_stage 0 or 1",
    "Megatron-LM training/arguments.py:1738, emerging optimizers exclude FSDP; layer_wise_optimizer"
    ".py",
)
def whole_matrices_are_sharded_once(job: Job, table: LayoutTable) -> BoolColumn:
    """ZeRO-2 and 3 cut gradients and weights anywhere."""
    whole = optimizer_of(job.training.optimizer).whole_matrices
    return np.asarray((table.zero_stage >= 2) & whole)


@rule(
    "zero_stage",
    "dist-muon gives whole matrices to the replicas: use zero_stage 1, or --optimizer muon",
    "Megatron-LM training/arguments.py:1727, use_layer_wise_distributed_optimizer",
)
def matrices_are_shared_out(job: Job, table: LayoutTable) -> BoolColumn:
    """Unsharded it is plain Muon."""
    sharded = optimizer_of(job.training.optimizer).always_sharded
    return np.asarray((table.zero_stage == 0) & sharded)


@rule(
    "dp_replicate",
    "the optimizer reads whole matrices, shared out over all replicas: use dp_replicate 1",
    "Megatron-LM core/optimizer/__init__.py, num_distributed_optimizer_instances == 1 of the "
    "layer-wise path",
)
def whole_matrices_over_all_replicas(job: Job, table: LayoutTable) -> BoolColumn:
    """There are no groups of replicas."""
    whole = optimizer_of(job.training.optimizer).whole_matrices
    return np.asarray((table.dp_replicate > 1) & whole)


@rule(
    "offload_optimizer",
    "the CPU updates AdamW alone: use --optimizer adamw, or do not offload the optimizer",
    "Ren et al., ZeRO-Offload, arXiv:2101.06840, section 5; Megatron-LM core/optimizer/"
    "__init__.py:515, HybridDeviceOptimizer",
)
def host_updates_adam(job: Job, table: LayoutTable) -> BoolColumn:
    """Speed on the host was measured of Adam."""
    usual = optimizer_of(job.training.optimizer).on_host
    return np.asarray((table.offload_optimizer > 0) & (not usual))


@rule(
    "tp pp cp dp micro_batch_size",
    "a layer that is updated by itself has seen one micro batch on one GPU: raise micro_batch_size "
    "to the whole batch on one GPU, or add update=step to the optimizer",
    "Zhao et al., GaLore, arXiv:2403.03507, section 4.3; the README of galore_torch: one GPU only",
)
def layers_update_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """Its gradients are gone before another micro batch, or another rank, could add to them."""
    several = job.training.global_batch_size > table.dp * table.micro_batch_size
    ranks = table.tp * table.pp * table.cp * table.dp > 1
    return np.asarray((several | ranks) & updates_by_layer(job))


@rule(
    "zero_stage",
    "--state-precision o1 to o3 shards as the distributed optimizer does: use zero_stage 0 or 1",
    "Azure/MS-AMP@9746ea8 msamp/megatron/optimizer/distrib_optimizer.py and Azure/MS-AMP-Examples "
    "gpt3/Megatron-LM.patch",
)
def levels_shard_once(job: Job, table: LayoutTable) -> BoolColumn:
    """Megatron-FSDP has buffers of its own."""
    return np.asarray((table.zero_stage >= 2) & (job.training.state_precision != "o0"))


@rule(
    "offload_optimizer",
    "--state-precision o1 to o3 offloads no optimizer: use o0, or do not offload",
    "Azure/MS-AMP@9746ea8 msamp/optim/adamw.py, a kernel of the GPU",
)
def levels_stay_on_the_device(job: Job, table: LayoutTable) -> BoolColumn:
    """No CPU updates states in 8 bits."""
    return np.asarray((table.offload_optimizer > 0) & (job.training.state_precision != "o0"))


OPTIMIZER_RULES = (
    whole_matrices_are_sharded_once,
    matrices_are_shared_out,
    whole_matrices_over_all_replicas,
    host_updates_adam,
    layers_update_alone,
)
"""Asked of every job that another optimizer than AdamW trains, whatever the runtime."""
LEVEL_RULES = (levels_shard_once, levels_stay_on_the_device)
"""Asked of every job at a level of FP8-LM."""
