"""Plain PyTorch without a compiler, on one rank or as replicas: autograd's bytes are known.

The decoder is the textbook one: separate linear layers, rotation of queries and keys as products
with cosines and sines, flash attention (`_scaled_dot_product_flash_attention`), fused
`torch.nn.functional.rms_norm`, cross entropy on fp32 logits. Weights are bf16; every gradient is
added to an fp32 buffer as soon as it exists; a fused Adam updates fp32 weights. Recomputation is
`torch.utils.checkpoint`, not reentrant. Replicas are those of `DistributedDataParallel`: each has
all states, and the buffers are its buckets (`gradient_as_bucket_view`).

Source of what is kept: pytorch/pytorch v2.13.0 tools/autograd/derivatives.yaml, the arguments each
backward formula names: `_fused_rms_norm` input and rstd; `native_layer_norm` input, mean and rstd;
`silu` and `gelu` self; `relu` result; `mul` both factors; `mm` both factors; the flash kernel
query, key, value, output and logsumexp; `add` and `_to_copy` nothing.
"""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.traits import (
    Adapting,
    Gradients,
    Host,
    Kernels,
    Pipeline,
    Recompute,
    Sharding,
)
from trainplan.costmodel.runtimes.traits.footprint import Autograd
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES


def recompute_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """The attention core is the one part that may run again."""
    return (("core_attn",),)


@rule(
    "tp pp cp zero_stage",
    "plain PyTorch cuts no model: use tp=pp=cp=1, zero_stage=0",
    "torch.nn.parallel.DistributedDataParallel: every rank has a whole copy",
)
def whole_replicas(job: Job, table: LayoutTable) -> BoolColumn:
    """Every rank holds everything."""
    return np.asarray((table.tp * table.pp * table.cp > 1) | (table.zero_stage > 0))


BUCKET_BYTES = 25 * 2**20
"""Source: PyTorch v2.13.0 `torch/nn/parallel/distributed.py`, bucket_cap_mb of 25."""


TORCH_EAGER = RuntimeTraits(
    name="torch-eager",
    version="2.13.0",
    kernels=Kernels(
        attention="flash2", elementwise="eager", head_bytes_per_logit=HEAD_BYTES["eager"]
    ),
    host=Host(layer="legacy"),
    gradients=Gradients(accumulated_bytes=4, message_bytes=4, added_separately=True),
    sharding=Sharding(
        zero_stages=(0,),
        overlaps_gradients=True,
        bucket_bytes=BUCKET_BYTES,
        bucket_elements=BUCKET_BYTES // 4,
    ),
    pipeline=Pipeline(schedules=("1f1b",), cuts_layers=False),
    optimizers=(  # any torch.optim.Optimizer runs
        ("adamw", "torch.optim.AdamW"),
        ("adamw8bit", "bitsandbytes.optim.AdamW8bit"),
        ("adafactor", "torch.optim.Adafactor"),
        ("lion", "bitsandbytes.optim.Lion"),
        ("sgd", "torch.optim.SGD"),
        ("muon", "torch.optim.Muon"),
        ("soap", "pytorch_optimizer.SOAP"),
        ("shampoo", "pytorch_optimizer.Shampoo"),
        ("galore", "galore_torch.GaLoreAdamW"),
        ("galore8bit", "galore_torch.GaLoreAdamW8bit"),
        ("apollo", "apollo_torch.APOLLOAdamW"),
        ("apollo-mini", "apollo_torch.APOLLOAdamW"),
    ),
    state_precisions=("o0", "bf16"),
    recompute=Recompute(stops_early=True, subsets=recompute_subsets),
    trains_on_cpu=True,
    rules=(whole_replicas,),
    adapting=Adapting(methods=("lora", "frozen")),
    autograd=Autograd(
        norm_statistics=True,
        every_norm=True,
        activation_output=True,
        final_norm=True,
        shared_layer_input=True,
        weight_gradients=True,
    ),
)
