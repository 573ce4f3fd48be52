"""Weight gradients that are tensors of their own before they are added to the accumulated ones.

A product that accumulates in place costs nothing here: see `kernels.linear_seconds`.
"""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.model import MIXER_COUNTS, latent_params, router_params, side_params
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.shards import dense_mlp_params, experts_params, shared_experts_params


def product_bytes(job: Job, traits: RuntimeTraits) -> int:
    """Bytes of a weight gradient as its product writes it. Source: `Gradients.added_separately`."""
    return job.training.storage_bytes if traits.gradients.added_separately else BYTES_FP32


def counted_microbatches(candidates: Candidates) -> IntColumn:
    """Micro batches of a step, at least 1, where `added_bytes` depends on them; else 0."""
    if not candidates.traits.gradients.added_separately:
        return np.zeros(len(candidates.table), dtype=np.int64)
    return np.maximum(1, num_microbatches(candidates.job, candidates.table))


def added_bytes(candidates: Candidates) -> FloatColumn:
    """Bytes moved to add the gradient of one weight, mean over the micro batches of a step.

    The gradient and the accumulated one are read, their sum is written. Where both have the same
    precision, the first gradient of a step becomes the accumulated one and nothing is added.
    Source: derived; PyTorch `torch/csrc/autograd/functions/accumulate_grad.h` keeps a first
    gradient it need not copy; a buffer of higher precision starts from zeros, or nearly (FSDP
    writes the first gradient into it).
    """
    gradient = candidates.job.training.storage_bytes
    accumulated = max(candidates.traits.gradients.accumulated_bytes, gradient)
    first = np.maximum(1, counted_microbatches(candidates))
    return always_added_bytes(candidates) * (1 - (accumulated == gradient) / first)


def always_added_bytes(candidates: Candidates) -> FloatColumn:
    """As `added_bytes`, of a micro batch that is not the first. Source: `added_bytes`."""
    gradient = candidates.job.training.storage_bytes
    accumulated = max(candidates.traits.gradients.accumulated_bytes, gradient)
    whole = adds_whole(candidates.traits, candidates.table).astype(np.float64)
    return (2 * accumulated + gradient) * whole


def table_added_bytes(job: Job, traits: RuntimeTraits) -> int:
    """As `added_bytes`, of the token table where products of weight gradients add theirs in place.

    Its gradient is no product. Buffers are zeroed before a step, so the first one is added too.
    Source: derived; Megatron-LM @d98e8a64 `core/tensor_parallel/layers.py`, VocabParallelEmbedding
    (F.embedding), and `core/distributed/distributed_data_parallel.py:578`, param.main_grad.add_.
    """
    gradient = job.training.storage_bytes
    accumulated = max(traits.gradients.accumulated_bytes, gradient)
    return (2 * accumulated + gradient) * traits.gradients.products_accumulate


def adds_whole(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Is the gradient of every weight a tensor of its own, added whole to the accumulated one?

    Source: `Gradients.added_separately`; under a pipeline `whole_under_pipeline`, and
    autograd adds where nothing is sharded.
    """
    if traits.gradients.added_separately or not traits.sharding.whole_under_pipeline:
        return np.full(len(table), traits.gradients.added_separately)
    return np.asarray(table.pp > 1)


def layer_weights(model: ModelSpec, table: LayoutTable) -> FloatColumn:
    """Weights of a layer of one kind on one rank, norms left out. Source: as `block_params`."""
    mixer = MIXER_COUNTS[model.mixer].divided(model) / table.tp + side_params(model)
    moe = model.moe
    if moe is None:
        return mixer + dense_mlp_params(model, table)
    shared = shared_experts_params(model, moe, table) + latent_params(model, moe)
    experts = experts_params(model, moe, table)
    return mixer + router_params(model, moe) + shared + experts
