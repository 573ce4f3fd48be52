"""What a release of torchtitan brings: names of keys, sizes of flavours, ready-made configs.

Recorded by running its registries; the commit and the licence stand in the file.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

from trainplan.costmodel.architecture import ModelSpec

RECORDED = "torchtitan/options.json"


class Flavour(NamedTuple):
    """A model of a registry: `model_registry(name)` of `torchtitan.models.module`."""

    module: str
    name: str


@cache
def _recorded() -> Mapping[str, Any]:
    text = resources.files("trainplan.planner.runtimes").joinpath(RECORDED).read_text("utf-8")
    return MappingProxyType(json.loads(text))


@cache
def keys() -> frozenset[str]:
    """Keys of a config, flat: `parallelism.tensor_parallel_degree`."""
    return frozenset(flag.removeprefix("--") for flag in _recorded()["flags"])


@cache
def flavours() -> Mapping[Flavour, ModelSpec]:
    """Models of the registries."""
    return MappingProxyType(
        {
            Flavour(module, name): ModelSpec.model_validate({"name": f"{module} {name}", **sizes})
            for module, models in _recorded()["flavours"].items()
            for name, sizes in models.items()
        }
    )


def ready_made(module: str, function: str) -> Mapping[str, object] | None:
    """What a function of `config_registry` sets beyond the defaults, by key."""
    found = _recorded()["configs"].get(module, {}).get(function)
    return None if found is None else MappingProxyType(found)


def modules() -> tuple[str, ...]:
    """Registries whose models and configs are recorded."""
    return tuple(_recorded()["configs"])


LISTED = {"layer_kinds", "layers", "mixer", "feed_forward"}
"""Fields that say in several ways which parts each layer has."""


def what_it_builds(model: ModelSpec) -> dict[str, object]:
    """What torchtitan knows of a model: two with the same are one to it.

    Widths that no layer has, heads beside latent ones, and the bias that balances any router here
    say nothing.
    """
    known: dict[str, Any] = model.model_dump(exclude={"name", "model_type", *LISTED})
    known["parts"] = [model.mixers, model.moe_layers]
    if model.num_dense_layers == 0:
        del known["intermediate_size"]
    if model.mla:
        del known["num_key_value_heads"], known["head_dim"]
    if not model.num_sliding_window_layers:
        del known["sliding_window"]
    if model.moe:
        moe = known["moe"]
        del moe["first_k_dense_replace"], moe["moe_layer_freq"]
        del moe["router_bias"], moe["router_bias_is_parameter"]
        for name in ("n_group", "topk_group", "routed_scaling_factor"):
            moe[name] = float(moe[name] or 1)
    if model.rope_scaling:
        known["rope_scaling"] = _scaling(known["rope_scaling"], latent=model.mla is not None)
    return known


def _scaling(scaling: dict[str, Any], *, latent: bool) -> dict[str, Any]:
    """Numbers that the kind of scaling reads, with what stands for those that are silent."""
    stated = {name: scaling[name] for name in ("rope_type", "factor")}
    stated["original"] = scaling["original_max_position_embeddings"]
    if scaling["rope_type"] == "llama3":
        return stated | {n: scaling[n] for n in ("low_freq_factor", "high_freq_factor")}
    silent = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
    stated |= {n: v if scaling[n] is None else scaling[n] for n, v in silent.items()}
    return stated | ({"mscale": scaling["mscale_all_dim"] or 0.0} if latent else {})
