"""Options of a run: those a search may choose, those it may not and why, and those a runtime lacks.

An option of `CHOSEN` changes the time of a step and nothing of what it computes. Its values are the
runtime's default, those it declares as settings, and those a run may state; no other has a price.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from trainplan.costmodel.job import Job
from trainplan.costmodel.runtimes.base import RuntimeTraits

CHOSEN: Mapping[str, Callable[[RuntimeTraits], object]] = MappingProxyType(
    {
        "cuda_graph": lambda one: one.host.cuda_graph,
        "overlap_grad_reduce": lambda one: one.sharding.overlaps_gradients,
        "overlap_param_gather": lambda one: one.sharding.overlaps_parameters,
        "overlap_tp_comm": lambda one: one.communication.overlaps_tensor_parallel,
        "microbatch_group_size": lambda one: None,
        "overlap_moe_a2a": lambda one: one.experts.overlaps,
        "delay_wgrad": lambda one: one.experts.delays_weights,
        "overlap_shared_experts": lambda one: one.experts.overlaps_shared,
        "moe_chunks": lambda one: one.experts.chunks,
        "moe_dispatcher": lambda one: one.experts.dispatcher,
        "cp_comm_type": lambda one: one.communication.context_exchange,
    }
)
"""Options that a search may choose, with what a runtime does by default."""
UNSEARCHED: Mapping[str, str] = MappingProxyType(
    {
        "attention": "the kernel that is installed",
        "dropout": "part of the training",
        "cross_entropy": "the kernel that is installed, which moves memory alone",
        "compile": "the software of a run: kernels that a compiler fuses round otherwise",
        "bucket_mb": "a number: `plan estimate` prices each, and an optimum lies inside",
        "fp8_recipe": "number format",
        "moe_dispatch_dtype": "tokens are rounded on their way: part of the training",
        "deepep_proxy": "the library that is installed",
        "gradient_dtype": "number format; Megatron tries it with `--search-options all`",
        "weight_bits": "weights are rounded on their way: part of the training",
        "gradient_bits": "gradients are rounded on their way: part of the training",
        "fp8_param_gather": "number format",
        "fp8_transpose_cache": "memory, for which adapters leave it off by themselves",
        "activation_func_fp8_input_store": "number format",
        "fp8_attention": "number format, in which no kernel of attention is measured",
        "moment_dtype": "number format; Megatron tries it with `--search-options all`",
        "fused_optimizer": "the kernel that is installed, which moves memory alone",
        "offload_activation_layers": "its copies are taken as free, so its price is no reason",
        "fsdp_version": "the software of a run, priced the same but for weights in 4 bits",
        "adapter_dtype": "number format",
        "liger": "the kernels that are installed",
        "routing": "what tokens do: no setting of a runtime",
        "expert_placement": "the order of experts in a checkpoint: no setting of a runtime",
        "moe_capacity_factor": "part of the training: tokens are dropped",
        "moe_pad_to_capacity": "part of the training, with moe_capacity_factor",
        "moe_token_drop_policy": "part of the training, with moe_capacity_factor",
        "moe_router_padding": "rows that quantized products need, and the kernel decides",
    }
)
"""Options that no search chooses by its price, and why; `--option` states them."""


def option_without_price(job: Job, traits: RuntimeTraits) -> str | None:
    """The first stated value that the runtime does not run with, and what to do; null: none.

    `traits` are those of the runtime without the job's options.
    """
    for name in CHOSEN:
        value = getattr(job.options, name)
        known = tuple(values_of(name, traits))
        counted = isinstance(value, int) and not isinstance(value, bool) and len(known) > 1
        if value is not None and value not in known and not counted:
            text = job.options.arguments()[name]
            others = [one for one in dict.fromkeys(known) if isinstance(one, str)]
            use = f"use {' or '.join(others)}, or " if len(others) > 1 else ""
            return f"{text}: {traits.name} is not priced with it: {use}leave the option out"
    return None


def values_of(name: str, traits: RuntimeTraits) -> Iterator[object]:
    """Values of one of the options of `CHOSEN` that a runtime runs with, its default first."""
    yield CHOSEN[name](traits)
    yield from (one.value for one in traits.settings if one.name == name)
    yield from (one.value for one in traits.stated if one.name == name)
