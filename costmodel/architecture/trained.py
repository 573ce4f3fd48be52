"""What of a model is trained: all of it, adapters beside frozen weights, or all but some layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from trainplan.costmodel.architecture.layers import ATTENTIONS
from trainplan.costmodel.spec import Spec

if TYPE_CHECKING:
    from trainplan.costmodel.architecture.model import ModelSpec

Method = Literal["lora", "qlora", "frozen"]
Projection = Literal["q", "k", "v", "q_down", "q_up", "kv_down", "kv_up", "o", "gate", "up", "down"]
"""A matrix of a layer that an adapter may stand beside."""
ATTENTION_PROJECTIONS: tuple[Projection, ...] = (
    *("q", "k", "v", "q_down", "q_up", "kv_down", "kv_up", "o"),
)
MLP_PROJECTIONS: tuple[Projection, ...] = ("gate", "up", "down")
GROUPS: dict[str, tuple[Projection, ...]] = {
    "all": (*ATTENTION_PROJECTIONS, *MLP_PROJECTIONS),
    "attention": ATTENTION_PROJECTIONS,
    "mlp": MLP_PROJECTIONS,
}
"""Names for several matrices at once; those of them that a model has."""


class Trained(Spec):
    """What is trained where that is not every weight."""

    method: Method
    """Adapters beside 16-bit weights (lora) or beside 4-bit ones (qlora), or some layers frozen."""
    rank: Annotated[PositiveInt, Field(le=1 << 16)] | None = None
    """Of every adapter."""
    modules: tuple[str, ...] = ()
    """Matrices with adapters: projections, or a name for several."""
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
    """Matrices of a layer of a model with one kind."""
    found: list[Projection] = []
    if kind.mixer in ATTENTIONS:
        latent: tuple[Projection, ...] = ("q_up", "kv_down", "kv_up")
        if kind.mla and kind.mla.q_lora_rank:
            latent = ("q_down", *latent)
        found += [*(latent if kind.mla else ("q", "k", "v")), "o"]
    if kind.feed_forward != "none":
        found += ["gate", "up", "down"] if kind.gated_mlp else ["up", "down"]
    return tuple(found)


def adapted(kind: ModelSpec) -> tuple[Projection, ...]:
    """Matrices of such a layer that have adapters."""
    trained = kind.trained
    if trained is None or not trained.adapts:
        return ()
    request = {name for text in trained.modules for name in GROUPS.get(text, (text,))}
    return tuple(name for name in projections(kind) if name in request)


def _trained_whole(model: ModelSpec) -> str | None:
    """What layers have that is priced with every weight trained alone; null: nothing."""
    for kind in model.kinds:
        if kind.mixer not in ATTENTIONS:
            return f"mixer {kind.mixer}"
        if kind.side_products:
            return "side_products"
    return None


def complaint(model: ModelSpec) -> str | None:
    """What is asked to be trained that the model does not have; null: it has all."""
    trained = model.trained
    if trained is None:
        return None
    if trained.layers is not None and trained.layers[1] >= model.num_hidden_layers:
        return (
            f"trained: layers {trained.layers[0]}-{trained.layers[1]} are frozen, the model has "
            f"layers 0 to {model.num_hidden_layers - 1}"
        )
    if trained.adapts and model.tower and model.tower.frozen != "all":
        return "trained: adapters stand beside a frozen tower alone: add --tower frozen=all"
    if whole := _trained_whole(model):
        return f"trained: layers with {whole} are priced with all weights trained"
    there = {name for kind in model.kinds for name in projections(kind)}
    for text in trained.modules:
        if not there & set(GROUPS.get(text, (text,))):
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
    """Has a weight before the first layer a gradient, beside the token table?"""
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
