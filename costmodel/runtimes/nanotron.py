"""nanotron: FlashAttention-2, ZeRO-1, eager layers, fp32 gradient accumulation.

Source: huggingface/nanotron `src/nanotron/optim/gradient_accumulator.py` (fp32 accumulation),
`src/nanotron/models/llama.py`, and `src/nanotron/parallel/pipeline_parallel/engine.py` (all forward
then all backward, or 1F1B).
"""

from dataclasses import replace

from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.megatron.options import tp_overlap_needs_sequence_parallel
from trainplan.costmodel.runtimes.megatron.settings import OVERLAPPING_PRODUCTS
from trainplan.costmodel.runtimes.traits import (
    Gradients,
    Host,
    Kernels,
    Pipeline,
    Recipe,
    Recompute,
    Sharding,
)
from trainplan.costmodel.runtimes.traits.footprint import Autograd, Footprint
from trainplan.costmodel.runtimes.traits.needs import ANYWHERE
from trainplan.costmodel.runtimes.traits.settings import nothing_lacks

NANOTRON = RuntimeTraits(
    name="nanotron",
    version="0.4",
    kernels=Kernels(
        attention="flash2",
        elementwise="eager",
        # fp32 logits, which the caller holds, beside what _ShardedCrossEntropy makes of them
        # (tensor_parallel/functional.py; models/llama.py drops the bf16 ones before the loss)
        head_bytes_per_logit=8.0,
    ),
    host=Host(layer="fused"),
    gradients=Gradients(
        accumulated_bytes=4,
        message_bytes=4,
        added_separately=True,  # gradient_accumulator.py, _accumulate_grad
    ),
    sharding=Sharding(
        zero_stages=(0, 1),
        overlaps_gradients=True,
        # gradient_accumulator.py, get_fp32_accum_hook: reduce_scatter is not implemented
        reduces_whole_gradients=True,
    ),
    pipeline=Pipeline(
        schedules=("1f1b", "gpipe"),
        # p2p.py, BatchTensorSendRecvState: each exchange is waited for, sends included
        waits_for_messages=("1f1b", "gpipe"),
    ),
    # helpers.py, init_optimizer_and_grad_accumulator, without accumulate_grad_in_fp32
    state_precisions=("o0", "bf16"),
    recompute=Recompute(layers="all"),  # ParallelismArgs.recompute_layer
    # models/llama.py, CausalSelfAttention, copies queries, keys and values three times; peaks of
    # seven runs, with and without a pipeline, say that those before the rotation stay
    autograd=Autograd(activation_output=True, rotated_copies=True),
    footprint=Footprint(
        low_precision="cast", keeps_gathered_inputs=True, batch_first_attention=True
    ),
    settings=(
        replace(
            OVERLAPPING_PRODUCTS,
            # parallel/tensor_parallel/functional.py: rows only with tp_mode REDUCE_SCATTER
            source="parallelism.tp_linear_async_communication",
            lacks=nothing_lacks,
            needs=ANYWHERE,  # collectives of NCCL on a stream of their own
        ),
    ),
    rules=(tp_overlap_needs_sequence_parallel,),
    recipe=Recipe(splits_by_cost=True),  # models/base.py, build_model
)
