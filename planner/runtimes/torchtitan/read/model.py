"""The model of a config: a flavour of a registry, or sizes handed to a builder of a family."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Dispatcher, Precision
from trainplan.costmodel.presets import preset, preset_names
from trainplan.planner.runtimes.python_source import Made, Unread
from trainplan.planner.runtimes.torchtitan.write.facts import Flavour, flavours, what_it_builds
from trainplan.planner.runtimes.torchtitan.write.model import QUANTIZED

DISPATCHERS: Mapping[object, Dispatcher | None] = MappingProxyType(
    {None: None, "standard": None, "deepep": "deepep", "hybridep": "hybridep"}
)
"""Dispatcher of a `moe_comm_backend`; null: an all-to-all, as without one."""


class ReadModel(NamedTuple):
    """A model and what is told beside it."""

    model: ModelSpec
    precision: Precision | None
    """Null: that of the rest."""
    dispatcher: object
    """`moe_comm_backend`, null where nothing is told."""
    fp8_recipe: object = None
    """`recipe_name` of products in fp8, null where nothing is told."""


def model_of_flavour(module: str, name: str, predictions: int = 0) -> ModelSpec | None:
    """A model of a registry, as a preset of ours where it is one."""
    found = flavours().get(Flavour(module, name))
    if found is None:
        return None
    return as_preset(found.model_copy(update={"num_nextn_predict_layers": predictions}))


def as_preset(model: ModelSpec) -> ModelSpec:
    """The preset that is the same model to torchtitan, or the model."""
    return presets_by_what_it_builds().get(_key(model), model)


@cache
def presets_by_what_it_builds() -> Mapping[str, ModelSpec]:
    """Presets by what torchtitan knows of them; the first of each."""
    found: dict[str, ModelSpec] = {}
    for name in preset_names():
        found.setdefault(_key(preset(name)), preset(name))
    return MappingProxyType(found)


def _key(model: ModelSpec) -> str:
    return repr(sorted(what_it_builds(model).items()))


def read_model(spec: object, module: str) -> ReadModel | str:
    """The model of `model_spec`, or why it cannot be told; `module` is that of `--module`."""
    if isinstance(spec, Unread):
        return f"model_spec is {spec.text!r}"
    if not isinstance(spec, Made):
        return "there is no model_spec"
    if spec.name.endswith("model_registry"):
        return _of_registry(spec, module)
    if spec.name.endswith("in_fragments") and spec.first:
        return read_model(spec.first[0], module)
    if spec.name.endswith("sized"):
        return _of_sizes(spec)
    return f"{spec.name}(...) is no registry of torchtitan"


def _of_registry(spec: Made, module: str) -> ReadModel | str:
    parts = [part for part in spec.name.split(".") if part]
    family = parts[-2] if len(parts) > 1 else module.rpartition(".")[2]
    flavour = spec.first[0] if spec.first else spec.named.get("flavor")
    predictions = spec.named.get("num_mtp_layers", 0)
    if not isinstance(flavour, str) or not isinstance(predictions, int):
        return f"{spec.name}(...) names no flavour that can be read"
    found = model_of_flavour(family, flavour, predictions)
    if found is None:
        known = ", ".join(f.name for f in flavours() if f.module == family)
        return f"{family} has no recorded flavour {flavour!r}" + (f": {known}" if known else "")
    precision, recipe = _precision(spec)
    return ReadModel(found, precision, spec.named.get("moe_comm_backend"), recipe)


def _precision(spec: Made) -> tuple[Precision | None, object]:
    """That of the first converter, and the recipe it names where it is fp8."""
    converters = spec.named.get("converters")
    for one in converters if isinstance(converters, list) else ():
        for precision, (prefix, _) in QUANTIZED.items():
            if isinstance(one, Made) and f"{prefix}LinearConverter" in one.name:
                return precision, one.named.get("recipe_name") if precision == "fp8" else None
    return None, None


def _of_sizes(spec: Made) -> ReadModel | str:
    """What our own exporter wrote."""
    layers = spec.named.get("layers")
    bare = isinstance(layers, Made) and layers.name.endswith("without_qk_norm")
    builder = layers.first[0] if isinstance(layers, Made) and bare and layers.first else layers
    if not isinstance(builder, Made):
        return "layers are no call of a builder"
    try:
        sizes = dict(_sizes(spec, builder, bare=bare))
        model = ModelSpec.model_validate(sizes)
    except (ValidationError, KeyError, TypeError, AttributeError):
        return f"{builder.name}(...) has sizes that make no model"
    precision, recipe = _precision(spec)
    return ReadModel(as_preset(model), precision, builder.named.get("moe_comm_backend"), recipe)


def _sizes(spec: Made, builder: Made, *, bare: bool) -> Iterator[tuple[str, object]]:
    stated, size = spec.named, builder.named
    rope = size["rope"]
    if not isinstance(rope, Made):
        raise TypeError("rope")
    yield "name", stated["flavor"]
    yield "num_hidden_layers", size["n_layers"]
    yield "hidden_size", stated["dim"]
    yield "vocab_size", stated["vocab_size"]
    yield "tie_word_embeddings", stated["tied"]
    yield "norm_eps", stated["norm_eps"]
    yield "num_nextn_predict_layers", stated.get("num_mtp_layers", 0)
    yield "num_attention_heads", size["n_heads"]
    yield "max_position_embeddings", rope.named["max_context_length"]
    yield "rope_theta", rope.named["theta"]
    yield "rope_scaling", _scaling(rope.named, size)
    if builder.name.endswith("_build_dsv3_layers"):
        yield from _latent(size)
        return
    yield "num_key_value_heads", size["n_kv_heads"]
    yield "head_dim", size.get("head_dim", rope.named["dim"])
    yield "qk_norm", "none" if bare or "llama3" in builder.name else "head"
    if "moe" in builder.name:
        width = size["moe_hidden_dim"]
        yield "intermediate_size", width
        experts = {"num_experts": size["num_experts"], "num_experts_per_tok": size["top_k"]}
        yield "moe", {**experts, "moe_intermediate_size": width}
    else:
        yield "intermediate_size", size["hidden_dim"]


def _latent(size: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    yield "mla", {"q_lora_rank": size["q_lora_rank"] or None, **{n: size[n] for n in names}}
    yield "num_key_value_heads", size["n_heads"]
    yield "head_dim", _whole(size["qk_nope_head_dim"]) + _whole(size["qk_rope_head_dim"])
    yield "intermediate_size", size["dense_hidden_dim"]
    dense, width = size["n_dense_layers"], _whole(size["moe_hidden_dim"])
    shared = _whole(size["num_shared_experts"])
    if dense == size["n_layers"]:
        return
    scale = size["router_route_scale"]
    yield (
        "moe",
        {
            "num_experts": size["num_experts"],
            "num_experts_per_tok": size["router_top_k"],
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": shared * width,
            "first_k_dense_replace": dense,
            "router_score_function": size["router_score_func"],
            "norm_topk_prob": size["router_route_norm"],
            "n_group": size["router_num_expert_groups"],
            "topk_group": size["router_num_limited_groups"],
            "routed_scaling_factor": None if scale == 1.0 else scale,
        },
    )


def _scaling(rope: Mapping[str, object], size: Mapping[str, object]) -> dict[str, object] | None:
    kind = rope.get("scaling", "none")
    if kind == "none":
        return None
    if kind == "llama":
        return {
            "rope_type": "llama3",
            "factor": rope["scaling_factor"],
            "original_max_position_embeddings": rope["original_max_position_embeddings"],
            "low_freq_factor": rope.get("low_freq_factor"),
            "high_freq_factor": rope.get("high_freq_factor"),
        }
    return {
        "rope_type": "yarn",
        "factor": rope["rope_factor"],
        "original_max_position_embeddings": rope["original_seq_len"],
        "beta_fast": rope.get("beta_fast"),
        "beta_slow": rope.get("beta_slow"),
        "truncate": rope.get("truncate"),
        "mscale_all_dim": size.get("mscale") or None,
    }


def _whole(value: object) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(f"{value!r} is no size")
