"""MaxText on GPUs: weights sharded over all ranks by XLA, the whole step one compiled program.

Source: AI-Hypercomputer/maxtext `src/maxtext/configs/base.yml` (weight_dtype and grad_dtype
float32, dtype bfloat16, fsdp the axis that is cut), `configs/gpu/models/llama3_70b.yml`
(cudnn_flash_te) and `utils/max_utils.py`, cross_entropy_with_logits (one fp32 tensor of
exponentials is kept beside logits in 16 bits, then beside their gradient).
"""

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.fsdp import ALONE, data_parallel_only
from trainplan.costmodel.runtimes.traits import Gradients, Host, Kernels, Recompute, Sharding
from trainplan.costmodel.runtimes.traits.footprint import Footprint
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES


def recompute_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """Its policy that keeps some products, which is priced for plain attention.

    Source: AI-Hypercomputer/maxtext `src/maxtext/configs/base.yml`, remat_policy.
    """
    return () if model.mla else (("maxtext_save_qkv_proj",),)


MAXTEXT = RuntimeTraits(
    name="maxtext",
    version="e591f30c (2026-08-22)",
    kernels=Kernels(
        attention="flash",
        elementwise="fused",
        head_bytes_per_logit=HEAD_BYTES["unfused"],
        tuned_products=True,  # xla_gpu_autotune_level
    ),
    # nothing waits for Python between two kernels of a program
    host=Host(layer="fused", cuda_graph="full_iteration"),
    gradients=Gradients(
        accumulated_bytes=4,
        message_bytes=2,  # summed as the product writes it, then cast
    ),
    # xla_gpu_enable_latency_hiding_scheduler
    sharding=Sharding(
        in_groups=True,  # dcn_data_parallelism or ici_data_parallelism beside that of fsdp
        overlaps_gradients=True,
        overlaps_parameters=True,
    ),
    pipeline=ALONE,
    recompute=Recompute(
        policy="maxtext_save_qkv_proj",
        subsets=recompute_subsets,
        layers="all",  # remat_policy=full
        stops_early=True,  # the compiler removes what no backward pass reads
    ),
    state_precisions=("o0", "bf16"),  # configs/base.yml, weight_dtype: of moments as well
    rules=(data_parallel_only,),
    footprint=Footprint(low_precision="cast", sharded_weights_are_master=True),
)
