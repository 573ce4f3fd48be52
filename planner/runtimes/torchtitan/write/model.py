"""The model of a job as torchtitan builds it: a flavour of a registry, or the same in other sizes.

Source: torchtitan/models/{llama3,qwen3,deepseek_v3,gpt_oss}/__init__.py, whose builders are called.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Dispatcher, Job, Precision
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.runtimes.torchtitan.write.code import Call, Code, Expression
from trainplan.planner.runtimes.torchtitan.write.facts import flavours, what_it_builds

BACKENDS: Mapping[Dispatcher | None, str] = MappingProxyType(
    {None: "standard", "alltoall": "standard", "deepep": "deepep", "hybridep": "hybridep"}
)
"""`moe_comm_backend` of a dispatcher. Source: models/common/config_utils.py."""

SIZED = '''\
def sized(
    family,
    *,
    flavor,
    dim,
    vocab_size,
    tied,
    norm_eps,
    layers,
    num_mtp_layers=0,
    converters=(),
):
    """A model of a family in sizes of its own, initialised as its flavours are."""
    spec = family.model_registry("debugmodel")
    embedding_init = {"weight": skip_param_init} if tied else family._EMBEDDING_INIT
    head_init = getattr(family, "_output_linear_init", lambda dim: family._LINEAR_INIT)
    model = dataclasses.replace(
        spec.model,
        dim=dim,
        vocab_size=vocab_size,
        enable_weight_tying=tied,
        tok_embeddings=Embedding.Config(
            num_embeddings=vocab_size, embedding_dim=dim, param_init=embedding_init
        ),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=family._NORM_INIT),
        lm_head=Linear.Config(
            in_features=dim, out_features=vocab_size, param_init=head_init(dim)
        ),
        layers=layers,
    )
    if num_mtp_layers:
        model.mtp_layers = family._build_mtp_layers(
            layers[-1], dim=dim, num_mtp_layers=num_mtp_layers
        )
    for _, norm, _, _ in model.traverse(RMSNorm.Config):
        norm.eps = norm_eps
    for converter in converters:
        model = converter.build().convert(model)
    return dataclasses.replace(spec, flavor=flavor, model=model)
'''
WITHOUT_QK_NORM = '''\
def without_qk_norm(layers):
    """The layers of a family that norms queries and keys, for a model that does not."""
    for layer in layers:
        layer.attention.qk_norm = None
    return layers
'''


class Written(NamedTuple):
    """The text that makes a model: imports, helpers, and the expression itself."""

    imports: tuple[str, ...]
    helpers: tuple[str, ...]
    spec: Call


def model_of(job: Job, *, compiled: bool) -> Written:
    """The `model_spec` of a job.

    Raises:
        UnsupportedError: No builder makes such a model, or not in this precision.
    """
    model = job.model
    if reason := RUNTIMES["torchtitan"].refuses(model):
        raise UnsupportedError(
            f"torchtitan does not build {reason} ({model.name}): export to another runtime"
        )
    converters = _converters(job, compiled=compiled)
    imports = ("from torchtitan.components.quantization import ", *_classes(converters))
    quantized = (imports[0] + ", ".join(imports[1:]),) if converters else ()
    made = _flavour(job, converters) or _sized(job, converters)
    return made._replace(imports=(*made.imports, *quantized))


def _flavour(job: Job, converters: tuple[Call, ...]) -> Written | None:
    """That of a registry, where it is the same model."""
    wanted = what_it_builds(job.model) | {"num_nextn_predict_layers": 0}
    same = (name for name, one in flavours().items() if what_it_builds(one) == wanted)
    found = next(same, None)
    if found is None:
        return None
    named: dict[str, Expression] = {"attn_backend": "flex"}
    if job.model.moe:
        named["moe_comm_backend"] = BACKENDS[job.options.moe_dispatcher]
    if job.model.num_nextn_predict_layers:
        named["num_mtp_layers"] = job.model.num_nextn_predict_layers
    if converters:
        named["converters"] = converters
    registry = Call(f"{found.module}.model_registry", named, (found.name,))
    return Written((f"from torchtitan.models import {found.module}",), (), registry)


def _sized(job: Job, converters: tuple[Call, ...]) -> Written:
    model = job.model
    if model.attention_sinks:
        known = ", ".join(f.name for f in flavours() if f.module == "gpt_oss")
        raise UnsupportedError(
            f"torchtitan builds gpt_oss in its own sizes alone ({known}), not {model.name}"
        )
    family, layers = _layers(job)
    named: dict[str, Expression] = {
        "flavor": model.name,
        "dim": model.hidden_size,
        "vocab_size": model.vocab_size,
        "tied": model.tie_word_embeddings,
        "norm_eps": model.norm_eps,
        "layers": layers,
    }
    if model.num_nextn_predict_layers:
        named["num_mtp_layers"] = model.num_nextn_predict_layers
    if converters:
        named["converters"] = converters
    imports = (
        "import dataclasses",
        f"from torchtitan.models import {family}",
        "from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm",
        "from torchtitan.models.common.param_init import skip_param_init",
    )
    bare = layers.function == "without_qk_norm"
    helpers = (SIZED, WITHOUT_QK_NORM) if bare else (SIZED,)
    return Written(imports, helpers, Call("sized", named, (Code(family),)))


def _layers(job: Job) -> tuple[str, Call]:
    """Family and builder of the layers."""
    model = job.model
    sizes: dict[str, Expression] = {
        "n_layers": model.num_hidden_layers,
        "dim": model.hidden_size,
        "n_heads": model.num_attention_heads,
    }
    common: dict[str, Expression] = {"attn_backend": "flex", "rope": _positions(model)}
    if model.moe:
        common["moe_comm_backend"] = BACKENDS[job.options.moe_dispatcher]
    if model.mla:
        return "deepseek_v3", Call(
            "deepseek_v3._build_dsv3_layers", {**sizes, **_latent(model), **common}
        )
    sizes["n_kv_heads"] = model.num_key_value_heads
    whole = model.head_dim * model.num_attention_heads == model.hidden_size
    if model.moe is None and model.qk_norm == "none" and whole:
        sizes["hidden_dim"] = model.intermediate_size
        return "llama3", Call("llama3._build_llama3_layers", {**sizes, **common})
    sizes["head_dim"] = model.head_dim
    if moe := model.moe:
        sizes["moe_hidden_dim"] = moe.moe_intermediate_size
        sizes["num_experts"] = moe.num_experts
        sizes["top_k"] = moe.num_experts_per_tok
    else:
        sizes["hidden_dim"] = model.intermediate_size
    builder = f"qwen3._build_qwen3{'_moe' if model.moe else ''}_layers"
    layers = Call(builder, {**sizes, **common})
    return "qwen3", layers if model.qk_norm == "head" else Call("without_qk_norm", {}, (layers,))


def _latent(model: ModelSpec) -> dict[str, Expression]:
    """Sizes of latent attention and of the experts beside it."""
    mla, moe = model.mla, model.moe
    assert mla is not None
    scaling = model.rope_scaling
    dense = moe.first_k_dense_replace if moe else model.num_hidden_layers
    sizes: dict[str, Expression] = {
        "n_dense_layers": dense,
        "q_lora_rank": mla.q_lora_rank or 0,
        "kv_lora_rank": mla.kv_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim,
        "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim,
        "mscale": (scaling.mscale_all_dim if scaling else None) or 0.0,
        "dense_hidden_dim": model.intermediate_size,
        "non_blocking_capacity_factor": None,
    }
    experts: dict[str, Expression] = {
        "moe_hidden_dim": moe.moe_intermediate_size if moe else 1,
        "num_experts": moe.num_experts if moe else 1,
        "num_shared_experts": (
            moe.shared_expert_intermediate_size // moe.moe_intermediate_size if moe else 1
        ),
        "router_top_k": moe.num_experts_per_tok if moe else 1,
        "router_score_func": moe.router_score_function if moe else "softmax",
        "router_num_expert_groups": None if moe is None or moe.n_group == 1 else moe.n_group,
        "router_num_limited_groups": None if moe is None or moe.n_group == 1 else moe.topk_group,
        "router_route_scale": (moe.routed_scaling_factor if moe else None) or 1.0,
        "router_route_norm": moe.norm_topk_prob if moe else False,
    }
    if moe is None:
        sizes["moe_comm_backend"] = "standard"
    return sizes | experts


def _positions(model: ModelSpec) -> Call:
    """The builders copy it to every layer."""
    rotated = model.mla.qk_rope_head_dim if model.mla else model.head_dim
    named: dict[str, Expression] = {
        "dim": rotated,
        "max_context_length": model.max_position_embeddings,
        "theta": model.rope_theta,
    }
    if scaling := model.rope_scaling:
        length = scaling.original_max_position_embeddings or model.max_position_embeddings
        llama = scaling.rope_type == "llama3"
        given = {
            "scaling": "llama" if llama else "yarn",
            ("scaling_factor" if llama else "rope_factor"): scaling.factor,
            ("original_max_position_embeddings" if llama else "original_seq_len"): length,
            "low_freq_factor": scaling.low_freq_factor if llama else None,
            "high_freq_factor": scaling.high_freq_factor if llama else None,
            "beta_fast": None if llama else scaling.beta_fast,
            "beta_slow": None if llama else scaling.beta_slow,
            "truncate": None if llama else scaling.truncate,
        }
        named |= {name: value for name, value in given.items() if value is not None}
    return Call("ComplexRoPE.Config", named)


def _converters(job: Job, *, compiled: bool) -> tuple[Call, ...]:
    """What quantizes the products.

    The head and the router keep 16 bits, as priced.
    Source: torchtitan/components/quantization/float8.py, mx.py and nvfp4.py.
    """
    precision, moe = job.training.precision, job.model.moe
    if precision not in QUANTIZED:
        return ()
    name, limits = QUANTIZED[precision]
    compiler: dict[str, Expression] = {"model_compile_enabled": compiled}
    stated = job.options.fp8_recipe if precision == "fp8" else None
    recipe: dict[str, Expression] = {"recipe_name": stated} if stated else {}
    linear = Call(f"{name}LinearConverter.Config", {**recipe, **limits, **compiler})
    if moe is None:
        return (linear,)
    if precision == "nvfp4":
        raise UnsupportedError(
            "torchtitan has no experts in nvfp4 (components/quantization): use mxfp8 or fp8"
        )
    return linear, Call(f"{name}GroupedExpertsConverter.Config", compiler)


QUANTIZED: Mapping[Precision, tuple[str, Mapping[str, Expression]]] = MappingProxyType(
    {
        "fp8": ("Float8", {"filter_fqns": ["lm_head", "router.gate"]}),
        "mxfp8": ("MXFP8", {"fqns": ["attention", "feed_forward", "shared_experts"]}),
        "nvfp4": ("NVFP4", {"fqns": ["attention", "feed_forward"]}),
    }
)
"""Prefix of the converters of a precision, and which products they take."""


def _classes(converters: tuple[Call, ...]) -> tuple[str, ...]:
    return tuple(converter.function.removesuffix(".Config") for converter in converters)
