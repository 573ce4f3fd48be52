"""NeMo Framework 24 and 25: Megatron Core with bf16 gradients and tensor-parallel overlap.

Source: NVIDIA/NeMo `llm/recipes` (grad_reduce_in_fp32=False, grad_sync_dtype bf16,
tp_comm_overlap=True) and NVIDIA/dgxc-benchmarking, which sets the same.
"""

from dataclasses import replace

from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.runtimes.adapters import BRIDGE_RULES
from trainplan.costmodel.runtimes.megatron.core import MEGATRON_CORE
from trainplan.costmodel.runtimes.megatron.settings import NEMO_SETTINGS, NEMO_STATED
from trainplan.costmodel.runtimes.megatron_bridge import MEGATRON_BRIDGE
from trainplan.costmodel.runtimes.traits.layers import MAMBA_2, ONE_HALF
from trainplan.costmodel.runtimes.traits.offloading import no_offloads

NEMO = replace(
    MEGATRON_CORE,
    name="nemo",
    version="25.04",
    kernels=MEGATRON_BRIDGE.kernels,  # which took NeMo over
    gradients=MEGATRON_BRIDGE.gradients,
    sharding=MEGATRON_BRIDGE.sharding,
    # lightning/pytorch/strategies/megatron_strategy.py, ParallelismConfig has no hierarchy
    communication=replace(MEGATRON_BRIDGE.communication, heads_in_ring=False),
    experts=replace(MEGATRON_CORE.experts, narrow=()),  # nor to send tokens in 8 bits
    # Megatron Core learnt to offload activations later
    offloading=replace(MEGATRON_CORE.offloading, modules=(), choices=no_offloads),
    # fp8_params and cuDNN attention; routing weights as in Megatron Core before 0.12
    footprint=replace(MEGATRON_BRIDGE.footprint, weighted_experts=False),
    layers=frozenset({MAMBA_2, ONE_HALF}),  # what Megatron Core had by 0.12
    optimizers=(("adamw", "adam"),),
    state_precisions=("o0",),
    settings=NEMO_SETTINGS,
    stated=NEMO_STATED,
    rules=(*MEGATRON_CORE.rules, *BRIDGE_RULES),
    adapting=MEGATRON_BRIDGE.adapting,  # peft/lora.py, from which that of Megatron-Bridge came
    recipe=replace(
        MEGATRON_CORE.recipe,
        shards_optimizer=True,
        # NVIDIA/NeMo tuning/conf/megatron_gpt_finetuning_config.yaml: lora_tuning, attention_qkv
        lora=Trained(method="lora", rank=32, modules=("q", "k", "v")),
    ),
)
