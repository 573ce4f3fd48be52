"""What the modeling code of a `model_type` fixes beside the fields of its `config.json`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainplan.costmodel.architecture import FeedForward, Mixer
from trainplan.costmodel.families.reader import HfConfig

Fields = Mapping[str, object]
"""Fields of a spec."""
QKV: Final[Fields] = {"qkv_bias": True}
HEAD: Final[Fields] = {"qk_norm": "head"}
BALANCED: Final[Fields] = {"router_score_function": "sigmoid", "router_bias": True}
"""A router of sigmoids with one balancing bias per expert (DeepSeek-V3)."""
PARAMETER: Final[Fields] = {"router_bias": True, "router_bias_is_parameter": True}
ATTENTION: Final[Fields] = {"qkv_bias": True, "attention_output_bias": True}
LINEAR: Final[Fields] = {**ATTENTION, "mlp_bias": True}
FLAGS: Final[Mapping[str, Fields]] = {
    "attention_bias": ATTENTION,
    "mlp_bias": {"mlp_bias": True},
    "tie_word_embeddings": {"tie_word_embeddings": True},
}
"""A field that is true or false -> what of the model it switches on. Source: `LlamaConfig`."""
NO_BIASES: Final = {"attention_bias": None, "mlp_bias": None}
"""Its code has no such switches."""
NO_MLP_BIAS: Final = {"mlp_bias": None}
GROUPED: Final = ("num_key_value_heads",)
"""Sizes that are not those of as many key-value heads as heads where the file lacks them."""

Each = Callable[[HfConfig, Sequence[Mixer], Sequence[FeedForward]], Sequence[Fields]]


@dataclass(frozen=True, slots=True)
class Family:
    """How one `model_type` is built; everything left out is as in a Llama."""

    source: str
    """Modeling code, or the report, all this was taken from."""
    model: Fields = field(default_factory=dict)
    """Fields of `ModelSpec` that its code fixes."""
    experts: Fields | None = field(default_factory=dict)
    """Fields of `MoeSpec` that its code fixes; null: it has no experts, whatever the file names."""
    experts_if: str | None = None
    """A switch without which there are no experts, whatever their number."""
    flags: Mapping[str, Fields | None] = field(default_factory=dict)
    """Its switches, and those of `FLAGS` that mean something else; null: no switch of its."""
    off: tuple[str, ...] = ()
    """Switches that are modelled only where they are off."""
    on: tuple[str, ...] = ()
    """Switches that are modelled only where they are on."""
    ignores: tuple[str, ...] = ()
    """Further fields that change no size and no product."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Field of `aliases.ALIASES` -> its name here, where no other name is meant."""
    defaults: Fields = field(default_factory=dict)
    """Defaults of its class beside those of class_defaults.json."""
    needs: tuple[str, ...] = ()
    """Fields that its file has to give, though files of others may leave them out."""
    of_all: tuple[str, ...] = ()
    """Fields that may be a list with the same number for every layer."""
    window: str | None = "sliding_window"
    """Field with the tokens of a sliding window; null: none slides whatever the file says."""
    slides: Callable[[HfConfig], Sequence[bool]] | None = None
    """Which layers slide where the file lists no kinds; null: all."""
    full_unrotated: bool = False
    """Full-attention layers beside sliding ones have no positions."""
    mixers: Callable[[HfConfig], Sequence[Mixer]] | None = None
    """What mixes the tokens of every layer, where it is no plain attention."""
    dense: Callable[[HfConfig], Sequence[bool]] | None = None
    """Which layers have no experts, where the usual fields do not say."""
    feed_forwards: Callable[[HfConfig], Sequence[FeedForward]] | None = None
    """What feeds forward in every layer, where some have nothing."""
    each: Each | None = None
    """Fields of `LayerKind` in which each layer differs from the model, given its parts."""
    notes: tuple[str, ...] = ()
    """What is counted but not priced, or differs from the code."""
    more: Callable[[HfConfig], Fields] | None = None
    """Further fields of `ModelSpec`, read from the file."""
    more_experts: Callable[[HfConfig], Fields] | None = None
    """Further fields of `MoeSpec`, read from the file."""

    def switches(self) -> Mapping[str, Fields]:
        """All fields that are true or false and what each switches on."""
        both = {**FLAGS, **self.flags}
        return {name: fields for name, fields in both.items() if fields is not None}
