"""Layers of a measured run whose products stay in 16 bits."""

from trainplan.costmodel.architecture import ATTENTIONS, ModelSpec
from trainplan.costmodel.documents import RunWide
from trainplan.costmodel.validate.cases.needed import Skip

WIDE = "{} in 16 bits"
"""Name of a kind of layer that multiplies so."""


def in_16_bits(model: ModelSpec, wide: RunWide) -> ModelSpec:
    """The model with the layers whose products stay in 16 bits.

    Raises:
        Skip: The model does not list its layers, or its modules need a kind that none has.
    """
    if model.layers is None:
        raise Skip("incomplete", "training.wide of a model that does not list its layers")
    layers = _layers(model, model.layers, wide)
    modules = tuple(
        WIDE.format(name) if wide.mtp or name not in layers else name
        for name in model.nextn_layers or model.layers[-1:]
    )
    if not set(modules) <= set(layers):
        raise Skip("incomplete", "training.wide.mtp of layers of which no other is wide")
    more = [
        kind.model_copy(update={"name": WIDE.format(kind.name), "wide_products": True})
        for kind in model.layer_kinds
        if WIDE.format(kind.name) in layers
    ]
    moe = model.moe and model.moe.model_copy(update={"wide_latent": wide.latent})
    update = {"layer_kinds": (*model.layer_kinds, *more), "layers": layers, "moe": moe}
    return model.model_copy(update={**update, "nextn_layers": modules})


def _layers(model: ModelSpec, names: tuple[str, ...], wide: RunWide) -> tuple[str, ...]:
    last = len(names) - wide.layers_at_end
    attends = [wide.attention and mixer in ATTENTIONS for mixer in model.mixers]
    return tuple(
        WIDE.format(name) if not wide.layers_at_start <= place < last or attends[place] else name
        for place, name in enumerate(names)
    )
