"""Layers of Hugging Face transformers as they run without a compiler, whatever shards them.

Source: huggingface/transformers `models/llama/modeling_llama.py` (projections apart, the norm as
single operations, the first of them a copy in fp32), `integrations/sdpa_attention.py` (the fused
core of torch) and `loss/loss_utils.py`, ForCausalLMLoss (the loss on an fp32 copy of all logits).
"""

import numpy as np

from trainplan.costmodel.architecture import ATTENTIONS
from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.adapters import adapters_are_whole
from trainplan.costmodel.runtimes.traits import Adapting, Kernels, Recompute
from trainplan.costmodel.runtimes.traits.footprint import Autograd
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES

KERNELS = Kernels(
    attention="flash2",
    elementwise="eager",
    head_bytes_per_logit=HEAD_BYTES["eager"] + BYTES_BF16,  # the logits stay in the model's output
    # transformers computes all logits; the module that `plan export` writes drops ignored tokens
    skips_ignored_tokens=True,
)
AUTOGRAD = Autograd(norm_fp32_copies=1, activation_output=True)
ADAPTING = Adapting(methods=("lora", "qlora", "frozen"))  # peft, bitsandbytes, requires_grad_
RECOMPUTE = Recompute(
    layers="all",  # modeling_layers.py, GradientCheckpointingLayer: every layer by itself
    stops_early=True,  # torch.utils.checkpoint, not reentrant
)


@rule(
    "pp",
    "its configuration has no degree for a pipeline: use pp=1",
    "huggingface/accelerate parallelism_config.py; deepspeedai/DeepSpeed runtime/config.py",
)
def configuration_has_no_pipeline(job: Job, table: LayoutTable) -> BoolColumn:
    """A model of transformers is one module; pipelines of either need another."""
    return np.asarray(table.pp > 1)


@rule(
    "ep etp",
    "its configuration shards experts as every other weight: use ep=1 and etp=1",
    "huggingface/accelerate parallelism_config.py, mesh_order; deepspeedai/DeepSpeed "
    "runtime/engine.py: expert groups come from layers of the script",
)
def configuration_has_no_expert_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """Experts of transformers lie in one module with all others of their layer."""
    return np.asarray((table.ep > 1) | (table.etp > 1))


@rule(
    "tp sequence_parallel",
    "tensor parallelism cuts whole heads of keys and values and no sequence: use a tp that divides "
    "num_key_value_heads, and sequence_parallel=false",
    "huggingface/transformers models/llama/configuration_llama.py, base_model_tp_plan; "
    "deepspeedai/DeepSpeed runtime/engine.py, _apply_autotp_partitioning",
)
def plan_cuts_whole_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Projections are cut by columns and rows."""
    uneven = job.model.num_key_value_heads % table.tp != 0
    return np.asarray(uneven | (table.sequence_parallel != 0))


@rule(
    "tp cp",
    "no plan of transformers cuts what mixes tokens other than attention: use tp=1 and cp=1",
    "huggingface/transformers models/jamba/configuration_jamba.py, base_model_tp_plan, and those "
    "of falcon_h1, kimi_linear, qwen3_next; mamba2 and zamba2 have none",
)
def other_mixers_are_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """Every rank would run them whole, on its part of a sequence alone."""
    cut = {*ATTENTIONS, "none"} - {"attention_and_mamba"}
    others = not cut.issuperset(job.model.mixers)
    return np.asarray(((table.tp > 1) | (table.cp > 1)) & others)


RULES = (
    other_mixers_are_whole,
    configuration_has_no_pipeline,
    configuration_has_no_expert_ranks,
    plan_cuts_whole_heads,
    adapters_are_whole,
)
