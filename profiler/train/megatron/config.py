"""What megatron-core is told of a model, a job and a layout."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import stage_layers
from trainplan.costmodel.runtimes import all_linear_biased, pipeline_layout_string
from trainplan.costmodel.shards import padded_vocab
from trainplan.profiler.torch_on_use import torch
from trainplan.profiler.train.activations import activations
from trainplan.profiler.train.request import TrainingRequest

NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
LOSS_WEIGHT = 0.01
"""Of the loss that balances experts. Source: Fedus et al., arXiv:2101.03961, section 2.2."""
NOT_FUSED = {
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "masked_softmax_fusion": False,
    "gradient_accumulation_fusion": False,
    "apply_rope_fusion": False,
    "persist_layer_norm": False,
}
"""Kernels of Apex, Transformer Engine or a compiler; what they compute is the same."""


def config_of(request: TrainingRequest, *, engine: bool = False, balanced: bool = False) -> Any:  # noqa: ANN401 (a TransformerConfig)
    """The configuration of the model and of everything that runs it.

    `engine` is Transformer Engine with its kernels; `balanced` spreads tokens over experts at
    random, whatever the router says.
    """
    from megatron.core.transformer import TransformerConfig  # noqa: PLC0415 (optional)

    job, layout = request.job, request.layout
    settings: dict[str, object] = {**(fused(job.model) if engine else NOT_FUSED)}
    settings |= {**_model(job.model), **_degrees(job, layout), **_recompute(layout)}
    settings |= {"moe_router_force_load_balancing": True} if balanced and job.model.moe else {}
    if job.model.moe:
        settings |= _experts(job.model, job.model.moe)
    dtype = dtype_of(job)
    return TransformerConfig(
        **settings,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        # gloo's isend still reads what this would free
        deallocate_pipeline_outputs=False,
    )


def fused(model: ModelSpec) -> Mapping[str, object]:
    """Kernels that run with Transformer Engine, as Megatron-LM and an exported plan ask for them.

    Source: NVIDIA/Megatron-LM core_v0.16.1 `megatron/core/transformer/transformer_config.py`, what
    `bias_activation_fusion` takes; `megatron/core/tensor_parallel/layers.py`, the extension of Apex
    without which the output layer refuses `gradient_accumulation_fusion`.
    """
    gated = model.gated_mlp and model.activation in {"silu", "gelu"}
    biased = model.activation == "gelu" and all_linear_biased(model)
    return {
        **dict.fromkeys(NOT_FUSED, True),
        "bias_activation_fusion": gated or biased,
        "gradient_accumulation_fusion": find_spec("fused_weight_gradient_mlp_cuda") is not None,
        "apply_rope_fusion": model.position_embedding == "rope",
        # else the engine multiplies one expert after the other
        "moe_grouped_gemm": model.moe is not None,
        "moe_permute_fusion": model.moe is not None,
    }


def dtype_of(job: Job) -> Any:  # noqa: ANN401 (a torch.dtype)
    """Of weights and activations."""
    return torch.bfloat16 if job.training.precision == "bf16" else torch.float32


def vocabulary(job: Job, layout: Layout) -> int:
    """Rows of the embedding. Source: `padded_vocab`."""
    import numpy as np  # noqa: PLC0415 (a number of one layout)

    return int(padded_vocab(job.model.vocab_size, np.asarray([layout.tp]))[0])


def _model(model: ModelSpec) -> Mapping[str, object]:
    return {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size,
        "num_attention_heads": model.num_attention_heads,
        "num_query_groups": model.num_key_value_heads,
        "kv_channels": model.head_dim,
        "normalization": NORMS[model.norm],
        "layernorm_epsilon": model.norm_eps,
        "gated_linear_unit": model.gated_mlp,
        "activation_func": activations()[model.activation],
        "add_bias_linear": all_linear_biased(model),
        "add_qkv_bias": model.qkv_bias,
        "qk_layernorm": model.qk_norm == "head",
    }


def _degrees(job: Job, layout: Layout) -> Mapping[str, object]:
    model = job.model
    settings: dict[str, object] = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": expert_tensor_ranks(job, layout),
        "sequence_parallel": layout.sequence_parallel and layout.tp > 1,
        "virtual_pipeline_model_parallel_size": layout.vpp if layout.vpp > 1 else None,
        "overlap_p2p_comm": layout.vpp > 1,
        "batch_p2p_comm": layout.vpp == 1,
    }
    text = stage_text(model, layout)
    return settings | ({"pipeline_model_parallel_layout": text} if text else {})


def expert_tensor_ranks(job: Job, layout: Layout) -> int:
    """Of a dense model as many as its tensor ranks: the runtime's own default."""
    return layout.etp if job.model.moe else layout.tp


def stage_text(model: ModelSpec, layout: Layout) -> str | None:
    """Layers of every stage where they are not alike, as an exported launch has it."""
    if layout.pp == 1:
        return None
    layers = stage_layers(model, layout)
    return pipeline_layout_string(layers, 0) if len(set(layers)) > 1 else None


def _recompute(layout: Layout) -> Mapping[str, object]:
    if layout.recompute == "none":
        return {}
    if layout.recompute == "selective":
        modules = list(layout.recompute_modules)
        return {"recompute_granularity": "selective", "recompute_modules": modules}
    return {
        "recompute_granularity": "full",
        "recompute_method": layout.recompute_method,
        "recompute_num_layers": layout.recompute_num_layers,
    }


def _experts(model: ModelSpec, moe: MoeSpec) -> Mapping[str, object]:
    biased = moe.router_bias and moe.router_score_function == "sigmoid"
    softmax = moe.router_score_function == "softmax"
    settings: dict[str, object] = {
        "num_moe_experts": moe.num_experts,
        "moe_ffn_hidden_size": moe.moe_intermediate_size,
        "moe_layer_freq": [int(one) for one in model.moe_layers],
        "moe_router_topk": moe.num_experts_per_tok,
        "moe_router_score_function": moe.router_score_function,
        "moe_router_dtype": "fp32",
        "moe_router_pre_softmax": softmax
        and (not moe.norm_topk_prob or moe.num_experts_per_tok == 1),
        "moe_router_topk_scaling_factor": moe.routed_scaling_factor,
        "moe_router_enable_expert_bias": biased,
        "moe_router_load_balancing_type": "seq_aux_loss" if biased else "aux_loss",
        "moe_aux_loss_coeff": LOSS_WEIGHT,
        "moe_token_dispatcher_type": "alltoall",
        "moe_shared_expert_intermediate_size": moe.shared_expert_intermediate_size or None,
        "moe_shared_expert_gate": moe.shared_expert_gate,
    }
    if moe.n_group and moe.topk_group and moe.n_group > 1:
        settings |= {"moe_router_num_groups": moe.n_group, "moe_router_group_topk": moe.topk_group}
    return settings
