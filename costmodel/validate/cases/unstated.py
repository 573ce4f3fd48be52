"""Settings and network that a record states, and what its runtime's defaults or recipes decide."""

import math
import re

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import Activation, ModelSpec, RopeScaling
from trainplan.costmodel.documents import MeasuredRun, RunCluster, RunModel
from trainplan.costmodel.hardware import GpuSpec, NicSpec
from trainplan.costmodel.job import (
    CrossEntropy,
    Float8Recipe,
    GradientType,
    Graph,
    RuntimeOptions,
    StatePrecision,
    StateType,
)
from trainplan.costmodel.presets import Machine, machines
from trainplan.costmodel.runtimes import RUNTIMES, Recipe
from trainplan.costmodel.validate.cases.names import DISPATCHERS, EXCHANGES, PROXIES, TRANSPORTS

NO_ATTENTION = frozenset({"none", "moe_router", "moe_preprocess"})
"""Modules of a graph without the launches of attention. Source: NVIDIA/Megatron-LM @d98e8a64
`transformer_config.py`, cuda_graph_scope."""
MONTH = re.compile(r"(?<!\d)20[2-9]\d(?:0[1-9]|1[0-2])(?!\d)")
"""Year and month in the name of a file, as torchtitan dates its reports: `..._202412_...`."""
OFFLOADED = re.compile(r"activation cpu offload, (\d+) layers")


def recipe_of(run: MeasuredRun) -> Recipe:
    """What the runtime of a run does where its record is silent; of an unknown one, nothing."""
    known = RUNTIMES.get(run.runtime)
    return known.recipe if known else Recipe()


def adapters_of(run: MeasuredRun) -> dict[str, object] | None:
    """Fields of the adapters of a run; null: neither it nor its runtime's recipes say any."""
    stated = run.training.adapters or recipe_of(run).lora
    return stated.model_dump() if stated else None


def drops_out(run: MeasuredRun) -> bool | None:
    """Do dropout masks exist? Null: what the runtime does by default.

    Source: `Recipe`, of each runtime.
    """
    recipe = recipe_of(run)
    if run.training.precision == "fp32" and recipe.fp32_dropout is not None:
        return recipe.fp32_dropout
    return recipe.ungated_dropout if run.model.gated_mlp is False else None


def activation(model: RunModel) -> Activation:
    """Activation function of the MLP: SiLU where it gates, ReLU in OPT, else GELU.

    Source: Zhang et al., OPT, arXiv:2205.01068, section 2.1, and the programs that ran it:
    eth-easl/sailor@cf2c8e3c `megatron/model/opt_model.py`.
    """
    if model.gated_mlp is not False:
        return "silu"
    return "relu" if model.name.startswith("OPT-") else "gelu"


def dense_intermediate_size(model: RunModel) -> int | None:
    """Width of the dense MLP; where all layers have experts, who state theirs, none is read."""
    if model.intermediate_size is None and model.moe and not model.moe.num_dense_layers:
        return model.moe.expert_intermediate_size
    return model.intermediate_size


def as_published(model: ModelSpec) -> ModelSpec:
    """The model with what its records leave out.

    Biases, sinks, clamp and YaRN of GPT-OSS; the groups of experts that DeepSeek-V3 keeps to; the
    positions of BLOOM and the norm behind its table.
    Source: arXiv:2508.10925, section 2; NVIDIA-NeMo/Megatron-Bridge `gpt_oss_bridge.py`;
    config.json of deepseek-ai/DeepSeek-V3, n_group and topk_group; arXiv:2211.05100, section 3.2.
    """
    name = model.name.upper()
    if name.startswith("BLOOM-"):
        return model.model_copy(update={"embedding_norm": True, "position_embedding": "alibi"})
    if model.moe is None:
        return model
    if name.startswith("DEEPSEEK-V3-"):
        moe = model.moe.model_copy(update={"n_group": 8, "topk_group": 4})
        return model.model_copy(update={"moe": moe})
    if not name.startswith("GPT-OSS-"):
        return model
    moe = model.moe.model_copy(update={"router_bias": True, "expert_bias": True})
    scaling = RopeScaling(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096)
    biases = {"qkv_bias": True, "attention_output_bias": True, "attention_sinks": True}
    return model.model_copy(
        update={**biases, "swiglu_limit": 7.0, "rope_scaling": scaling, "moe": moe}
    )


def moment_dtype(run: MeasuredRun) -> StateType | None:
    """Type of the Adam moments; null: fp32. Source: `Recipe.latent_moments`, of each runtime."""
    return recipe_of(run).latent_moments if run.model.mla else None


def state_precision(run: MeasuredRun) -> StatePrecision:
    """What states are stored in; records of before the field say so in words."""
    detail = run.training.precision_detail or ""
    known: StatePrecision = "bf16" if detail.startswith("pure bf16") else "o0"
    return run.training.state_precision or known


def plan_gradients(run: MeasuredRun) -> GradientType | None:
    """Gradients of plans by operations: as wide as weights, until the step; null: as usual.

    Source: Aceso's runtime, eth-easl/sailor@cf2c8e3c `sailor/Planner/baselines/Aceso/runtime/`:
    `scripts/run_gpt.sh` (local DDP without contiguous buffers) and `megatron/model/distributed.py`.
    """
    stages = run.layout.per_stage or run.layout.recompute_fraction_per_stage
    return "bf16" if stages and run.training.precision != "fp32" else None


def fused_optimizer(run: MeasuredRun) -> bool | None:
    """Does one kernel update weights? Null: as the runtime does. Source: `Recipe`."""
    stated = run.training.fused_optimizer
    return recipe_of(run).fused_optimizer if stated is None else stated


def offloaded_layers(run: MeasuredRun) -> int | None:
    """Layers whose activations wait in host memory."""
    stated = OFFLOADED.search(str(run.layout.offload or ""))
    return int(stated.group(1)) if stated else None


def _month(run: MeasuredRun) -> int:
    """Year and month of the software; of an undated run, later than all."""
    path = run.source.get("path") if isinstance(run.source, dict) else None
    dated = MONTH.search(str(path))
    return int(dated.group()) if dated else 999999


def tiles_loss(run: MeasuredRun) -> bool:
    """Does the loss run tile by tile? Source: `Recipe.tiles_loss_from`, where it is not stated."""
    since = recipe_of(run).tiles_loss_from
    usual = bool(since) and _month(run) >= since and not run.model.mtp_layers
    return usual if run.layout.tiled_loss is None else run.layout.tiled_loss


def loss_kernel(run: MeasuredRun) -> CrossEntropy | None:
    """Kernel of the loss; null: the runtime's. Source: `Recipe.compiles_loss_from`."""
    apart = run.layout.compile and _month(run) < recipe_of(run).compiles_loss_from
    return run.layout.cross_entropy or ("unfused" if apart else None)


def layers_by_cost(model: ModelSpec, pp: int) -> tuple[int, ...]:
    """Layers of every pipeline rank where ranks get equal shares of the weights in products.

    The block in which a rank's share is passed still belongs to it. The output projection counts
    and is the last block, so the last rank holds fewest layers.
    Source: huggingface/nanotron `src/nanotron/models/base.py`, build_model, and `models/llama.py`,
    get_block_compute_costs.
    """
    heads = 4 * model.num_attention_heads * model.head_dim
    layer = model.hidden_size * (heads + 3 * model.intermediate_size)
    total = model.num_hidden_layers * layer + model.vocab_size * model.hidden_size
    layers, rank = [0] * pp, 0
    for number in range(1, model.num_hidden_layers + 1):
        layers[rank] += 1
        rank += number * layer * pp > total * (rank + 1)
    return tuple(layers)


def other_task(run: MeasuredRun) -> str | None:
    """A task that is not training of weights on given tokens; null: it is."""
    if run.training.task == "lora" and adapters_of(run) is None:
        return "adapters: the base weights have no gradients and no optimizer state"
    if "--rl-" in str(run.layout.offload or ""):
        return "reinforcement learning: inference takes memory of its own"
    return None


UNSTATED_NIC = 3.125
"""GB/s of one GPU where neither the run nor the catalog says: 100 Gb/s Ethernet for four GPUs.

Source: assumed; AWS g5 and GCP g2 nodes of the published runs.
"""


ROUNDED = 0.02
"""Of a speed as records print it."""


def nic_of(cluster: RunCluster, gpu: str, per_node: int) -> NicSpec | None:
    """Network of one node; null: that of the catalog."""
    stated, spec = cluster.nominal_inter_gb_per_s, catalog.gpu(gpu)
    if isinstance(stated, float):
        stated = _of_one_gpu(stated, spec, per_node)
        named, carrier = of_cloud(cluster, gpu, per_node), TRANSPORTS.get(cluster.transport or "")
        usual = NicSpec(per_node=per_node, gb_per_s=stated, transport=carrier)
        return (named and named.nic) or usual
    if cluster.gpu is None or spec.nic_gb_per_s is None:
        return NicSpec(per_node=per_node, gb_per_s=UNSTATED_NIC)
    return None


def of_cloud(cluster: RunCluster, gpu: str, per_node: int) -> Machine | None:
    """The named machine of such GPUs with such a network; null: none has."""
    node, stated = (gpu, per_node, cluster.transport), cluster.nominal_inter_gb_per_s
    if not isinstance(stated, float):
        return None
    stated = _of_one_gpu(stated, catalog.gpu(gpu), per_node)
    for one in machines().values():
        nic = one.nic
        if nic and nic.transport and (one.gpu, one.gpus_per_node, nic.transport) == node:
            share = nic.per_node * nic.gb_per_s / per_node
            if math.isclose(share, stated, rel_tol=ROUNDED):
                return one
    return None


def _of_one_gpu(stated: float, spec: GpuSpec, per_node: int) -> float:
    """GB/s of one GPU; a figure that no GPU of the kind can send is that of its node.

    The wider of its host link and its usual adapter bounds what one GPU sends.
    Source: derived; foundation-model-stack/fms-fsdp README: "A100 80G 128 GPUs with 400Gbps" and
    "H100 96 GPUs with 800 Gbps", eight in a node; an A100 has 256 Gb/s of PCI Express 4.0.
    """
    adapter = spec.nic_gb_per_s.value if spec.nic_gb_per_s else 0.0
    widest = max(spec.host_gb_per_s.value, adapter)
    return stated / per_node if stated > widest else stated


def options_of(run: MeasuredRun) -> RuntimeOptions:
    """Options of the run; null where neither it nor its recipe says."""
    layout = run.layout
    overlap = layout.overlap
    stated = RuntimeOptions(
        attention=run.attention_backend,
        compile=layout.compile,
        cross_entropy=loss_kernel(run),
        cuda_graph=_graph(run),
        overlap_grad_reduce=overlap.grad_reduce if overlap else None,
        overlap_param_gather=overlap.param_gather if overlap else None,
        overlap_tp_comm=overlap.tp_comm if overlap else None,
        overlap_moe_a2a=overlap.moe_a2a if overlap else None,
        fp8_recipe=fp8_recipe(run),
        moe_dispatcher=DISPATCHERS.get(layout.moe_dispatcher or ""),
        deepep_proxy=PROXIES.get(layout.moe_dispatcher or ""),
        gradient_dtype=layout.gradient_dtype or plan_gradients(run),
        fp8_param_gather=layout.fp8_param_gather,
        activation_func_fp8_input_store=layout.activation_func_fp8_input_store,
        cp_comm_type=EXCHANGES.get(layout.cp_comm_type or ""),
        dropout=drops_out(run),
        moment_dtype=moment_dtype(run),
        fused_optimizer=fused_optimizer(run),
        adapter_dtype=recipe_of(run).adapter_dtype if run.training.task == "lora" else None,
        offload_activation_layers=offloaded_layers(run),
    )
    return with_graph(stated) if graphs_hybridep(run, stated) else stated


def fp8_recipe(run: MeasuredRun) -> Float8Recipe | None:
    """How products in fp8 scale operands; null: as the runtime does by default.

    Source: pytorch/torchtitan; records say `rowwise` where they mean it, and before it existed
    (2024) one scale for a tensor was the only way.
    """
    known = RUNTIMES.get(run.runtime)
    if run.training.precision != "fp8" or known is None:
        return None
    detail = run.training.precision_detail or ""
    named: dict[str, Float8Recipe] = {
        "gw_hp": "rowwise_with_gw_hp",
        "rowwise": "rowwise",
        "blockwise": "blockwise",
    }
    found = (recipe for words, recipe in named.items() if words in detail)
    usual: Float8Recipe | None = "tensorwise" if "rowwise" in known.fp8_recipes else None
    return next((recipe for recipe in found if recipe in known.fp8_recipes), usual)


def graphs_hybridep(run: MeasuredRun, stated: RuntimeOptions) -> bool:
    """Is the step of a run one CUDA graph, though its record names HybridEP alone?

    Source: `Recipe`, of each runtime.
    """
    silent = stated.moe_dispatcher == "hybridep" and stated.cuda_graph is None
    return silent and run.training.precision in recipe_of(run).graphs_hybridep


def with_graph(stated: RuntimeOptions) -> RuntimeOptions:
    """One graph of the step, with the exchange beside compute unless the run says otherwise."""
    alongside = stated.overlap_moe_a2a is not False
    return stated.model_copy(update={"cuda_graph": "full_iteration", "overlap_moe_a2a": alongside})


def _graph(run: MeasuredRun) -> Graph | None:
    """What a graph holds; one of the router alone leaves nearly all launches to the host.

    Of experts one that is not named holds attention: their dispatch asks the host for sizes.
    Source: NVIDIA/Megatron-LM @d98e8a64 `docs/user-guide/features/cuda_graph.md`, MoE Model
    Training.
    """
    stated = run.layout.cuda_graph
    if stated is None:
        return None
    if isinstance(stated, bool):
        return ("partial" if run.model.moe else "full_iteration") if stated else "none"
    modules = {stated} if isinstance(stated, str) else set(stated)
    if "full_iteration" in modules:
        return "full_iteration"
    return "none" if modules <= NO_ATTENTION else "partial"
