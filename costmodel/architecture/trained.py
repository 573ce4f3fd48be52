"""What of a model is trained: all of it, adapters on frozen weights, or all but some layers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Self, get_args

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from trainplan.costmodel.architecture.layers import ATTENTIONS, Mixer
from trainplan.costmodel.spec import Spec

if TYPE_CHECKING:
    from trainplan.costmodel.architecture.model import ModelSpec

Method = Literal["lora", "qlora", "frozen"]
AttentionProjection = Literal[
    "q", "k", "v", "q_down", "q_up", "kv_down", "kv_up", "o_down", "o", "output_gate",
    "index_q", "index_k", "index_weights",
]  # fmt: skip
"""Of attention: latent and low-rank ones down and up, a gate on the output, an indexer."""
MixerProjection = Literal["in_proj", "x_proj", "dt_proj", "low_down", "low_up", "out_proj"]
"""Of mixers that carry a state, and of short convolutions: into them, inside Mamba-1, decay and
gate of a low rank, out of them."""
MlpProjection = Literal["latent_in", "latent_out", "gate", "up", "down"]
"""Of feed-forward blocks, and around experts that work in a latent width."""
Projection = Literal[AttentionProjection, MixerProjection, MlpProjection, "side"]
"""A matrix of a layer that an adapter may be added to; `side`: next to both halves."""
MLP_PROJECTIONS: tuple[Projection, ...] = get_args(MlpProjection)
GROUPS: dict[str, tuple[Projection, ...]] = {
    "all": get_args(Projection),
    "attention": get_args(AttentionProjection),
    "mixer": get_args(MixerProjection),
    "mlp": MLP_PROJECTIONS,
}
"""Names for several matrices at once; those of them that a model has."""
ALIASES: dict[str, tuple[Projection, ...]] = {
    "all-linear": GROUPS["all"],
    "linear_qkv": ("q", "k", "v"), "linear_proj": ("o",),
    "linear_fc1": ("gate", "up"), "linear_fc2": ("down",),
    "linear_q_down_proj": ("q_down",), "linear_q_up_proj": ("q_up",),
    "linear_kv_down_proj": ("kv_down",), "linear_kv_up_proj": ("kv_up",),
    "q_proj": ("q", "q_up"), "k_proj": ("k",), "v_proj": ("v",), "o_proj": ("o",),
    "gate_proj": ("gate",), "up_proj": ("up",), "down_proj": ("down",),
}  # fmt: skip
"""What runtimes call them. Source: Megatron Core `transformer/attention.py`,
`multi_latent_attention.py` and `mlp.py`;
transformers `models/llama/modeling_llama.py`; huggingface/peft `tuners/lora/config.py`."""
CARRYING: tuple[Mixer, ...] = ("linear_attention", "mamba", "attention_and_mamba", "convolution")
"""Mixers with a projection into them and one out of them."""


class Trained(Spec):
    """What is trained where that is not every weight."""

    method: Method
    """Adapters on 16-bit weights (lora) or on 4-bit ones (qlora), or some layers frozen."""
    rank: Annotated[PositiveInt, Field(le=1 << 16)] | None = None
    """Of every adapter."""
    modules: tuple[str, ...] = ()
    """Matrices with adapters: projections, or a name for several, ours or a runtime's."""
    layers: tuple[NonNegativeInt, NonNegativeInt] | None = None
    """First and last frozen layer. Where the first is 0 the embedding is frozen, too."""
    passes_gradient: bool = True
    """Of a layer: a weight before it, or its own, is trained, so it has a backward pass."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        adapters = self.method != "frozen"
        if adapters and (self.rank is None or not self.modules):
            raise ValueError(f"{self.method} needs a rank and modules, such as rank=16,modules=all")
        if adapters and self.layers is not None:
            raise ValueError(f"{self.method} takes rank and modules, no layers")
        if not adapters and (self.rank is not None or self.modules):
            raise ValueError("frozen takes layers, no rank and no modules")
        if self.layers is not None and self.layers[0] > self.layers[1]:
            raise ValueError(f"layers {self.layers[0]}-{self.layers[1]}: the first comes last")
        return self

    @property
    def adapts(self) -> bool:
        """Are adapters trained, and nothing else?"""
        return self.method != "frozen"

    @property
    def quantised(self) -> bool:
        """Are the frozen matrices of layers kept in 4 bits?"""
        return self.method == "qlora"

    @property
    def freezes_embedding(self) -> bool:
        """Has the token table no gradient?"""
        return self.adapts or (self.layers is not None and self.layers[0] == 0)

    @property
    def text(self) -> str:
        """As `--train` takes it."""
        if self.layers is not None:
            return f"frozen:layers={self.layers[0]}-{self.layers[1]}"
        return f"{self.method}:rank={self.rank},modules={','.join(self.modules)}"


def projections(kind: ModelSpec) -> tuple[Projection, ...]:
    """Matrices of a layer of a model with one kind: what its mixer and feed-forward block have."""
    return (*_attention(kind), *_mixer(kind), *_feed_forward(kind))


def _attention(kind: ModelSpec) -> Iterator[Projection]:
    if kind.mixer not in ATTENTIONS:
        return
    mla, low, own = kind.mla, kind.low_rank, kind.key_value_projections
    if low or (mla and mla.q_lora_rank):
        yield "q_down"
    if mla:
        yield from ("q_up", "kv_down", "kv_up")
    else:
        yield "q_up" if low else "q"
        if own != "none":
            yield "k"
        if own == "both":
            yield "v"
    if low and low.output_rank and not mla:
        yield "o_down"
    yield "o"
    if kind.attention_output_gate != "none" and (mla or low):
        yield "output_gate"
    if kind.mixer == "sparse_attention" and not kind.shares_index:
        yield from ("index_q", "index_k", "index_weights")


def _mixer(kind: ModelSpec) -> Iterator[Projection]:
    if kind.mixer in CARRYING:
        yield "in_proj"
        if kind.ssm and kind.ssm.time_step_rank:
            yield from ("x_proj", "dt_proj")
        if kind.linear_attention and kind.linear_attention.gate_rank:
            yield from ("low_down", "low_up")
        yield "out_proj"
    if kind.side_products:
        yield "side"


def _feed_forward(kind: ModelSpec) -> Iterator[Projection]:
    if kind.feed_forward == "none":
        return
    if kind.moe and kind.moe.latent_size:
        yield from ("latent_in", "latent_out")
    if kind.gated_mlp:
        yield "gate"
    yield from ("up", "down")


def adapted(kind: ModelSpec) -> tuple[Projection, ...]:
    """Matrices of such a layer that have adapters."""
    trained = kind.trained
    if trained is None or not trained.adapts:
        return ()
    request = {name for text in trained.modules for name in _named(text)}
    return tuple(name for name in projections(kind) if name in request)


def _named(text: str) -> Collection[str]:
    """Projections of one of `Trained.modules`."""
    return GROUPS.get(text) or ALIASES.get(text) or (text,)


def complaint(model: ModelSpec) -> str | None:
    """What is to be trained that the model does not have; null: it has all."""
    trained = model.trained
    if trained is None:
        return None
    if trained.layers is not None and trained.layers[1] >= model.num_hidden_layers:
        return (
            f"trained: layers {trained.layers[0]}-{trained.layers[1]} are frozen, the model has "
            f"layers 0 to {model.num_hidden_layers - 1}"
        )
    if trained.adapts and model.tower and model.tower.frozen != "all":
        return "trained: adapters need a frozen tower: add --tower frozen=all"
    if trained.method != "lora" and any(kind.own_weights is not None for kind in model.kinds):
        return f"trained: layers with the weights of an earlier one take no {trained.method}"
    there = {name for kind in model.kinds for name in projections(kind)}
    for text in trained.modules:
        if not there & set(_named(text)):
            known = ", ".join((*GROUPS, *sorted(there)))
            return f"trained: no layer has the module {text!r}; this model takes {known}"
    return None


def trains_embedding(model: ModelSpec) -> bool:
    """Has the token table a gradient?"""
    return model.trained is None or not model.trained.freezes_embedding


def trains_head(model: ModelSpec) -> bool:
    """Has the output projection a gradient? A tied one is the token table."""
    trained = model.trained
    if trained is None or not trained.adapts:
        return trains_embedding(model) or not model.tie_word_embeddings
    return False


def _trains_tower(model: ModelSpec) -> bool:
    """Has a weight before the first layer a gradient, next to the token table?"""
    return model.tower is not None and model.tower.frozen != "all"


def of_layers(model: ModelSpec, kinds: list[ModelSpec]) -> Iterator[Trained | None]:
    """What is trained of each layer in order, given its kind.

    A layer passes a gradient where it has a trained weight, or one lies before it.
    """
    trained = model.trained
    reached = trained is None or not trained.freezes_embedding or _trains_tower(model)
    for number, kind in enumerate(kinds):
        if trained is None or (trained.layers and not _between(number, trained.layers)):
            reached = True
            yield None
        else:
            reached = reached or bool(adapted(kind))
            yield trained.model_copy(update={"layers": None, "passes_gradient": reached})


def _between(number: int, limits: tuple[int, int]) -> bool:
    return limits[0] <= number <= limits[1]
