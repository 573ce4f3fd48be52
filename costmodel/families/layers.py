"""Which layer has which mixer, and which has experts, in the spellings of `config.json`."""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import FeedForward, Mixer, MoeSpec, placed_layers
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.aliases import alias_of
from trainplan.costmodel.families.family import Family, Fields
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.spec import shown

SLIDING: Final = "sliding_attention"
FULL: Final = "full_attention"
MIXERS: Final[Mapping[str, Mixer]] = {
    "full_attention": FULL,
    "attention": FULL,
    "global": FULL,
    "sliding_attention": SLIDING,
    "sliding": SLIDING,
    "local": SLIDING,
    "chunked_attention": "chunked_attention",
}
"""Spelling in `layer_types` -> mixer. Source: transformers `ALLOWED_LAYER_TYPES`."""
DENSE: Final[Mapping[str, bool]] = {"dense": True, "sparse": False, "moe": False}
"""Spelling in `mlp_layer_types` -> has it no experts?"""


def layers(config: HfConfig, family: Family, moe: MoeSpec | None) -> dict[str, object]:
    """Fields of a model that say what each of its layers is made of."""
    mixers, window = _mixers(config, family)
    feeds = _feed_forwards(config, family, moe, len(mixers))
    if "moe" not in feeds:
        moe = None
    changes = family.each(config, mixers, feeds) if family.each else None
    placed = _placed(moe, feeds) if moe else None
    return {"sliding_window": window, **placed_layers(mixers, placed, feeds, changes)}


def _feed_forwards(
    config: HfConfig, family: Family, moe: MoeSpec | None, count: int
) -> tuple[FeedForward, ...]:
    """What feeds forward in every layer."""
    if family.feed_forwards:
        return tuple(family.feed_forwards(config))
    if moe is None:
        return tuple("mlp" for _ in range(count))
    return tuple("mlp" if one else "moe" for one in (family.dense or dense_layers)(config))


def _placed(moe: MoeSpec, feeds: Sequence[FeedForward]) -> MoeSpec:
    """The experts with leading dense layers or a period, where that says the same as the list."""
    leading = list(feeds).index("moe")
    for change in ({"first_k_dense_replace": leading}, {"moe_layer_freq": leading + 1}):
        one = moe.model_copy(update=change)
        if one.placed(len(feeds)) == tuple(feeds):
            return one
    return moe


def count_of_layers(config: HfConfig) -> int:
    """Layers of the model, under any name."""
    return config.integer(alias_of(config, "num_hidden_layers"))


def of_length(config: HfConfig, name: str, length: int) -> None:
    """Refuse a list that has not one entry for each layer."""
    layers = count_of_layers(config)
    if length != layers:
        raise SpecError(
            f"{config.where}: '{config.path}{name}' has {length} entries, "
            f"'num_hidden_layers' is {layers}; make them equal"
        )


def listed(config: HfConfig, name: str) -> tuple[str, ...]:
    """A list of words, one for each layer, or nothing."""
    words = config.with_defaults({name: None}).texts(name)
    if words:
        of_length(config, name, len(words))
    return words


Words = Mapping[str, Mixer]


def named(config: HfConfig, words: Sequence[str], known: Words, where: str) -> tuple[Mixer, ...]:
    """Mixers of a list of layer types."""
    for word in words:
        if word not in known:
            raise UnsupportedError(
                f"{config.where}: '{where}' has {shown(word)}, which is not modelled; known: "
                f"{', '.join(sorted(known))}"
            )
    return tuple(known[word] for word in words)


def _mixers(config: HfConfig, family: Family) -> tuple[Sequence[Mixer], int | None]:
    """The mixer of every layer, and the tokens of the window where one slides."""
    if family.mixers:
        mixers = tuple(family.mixers(config))
        window = _window(config, family) if SLIDING in mixers else None
        return mixers, window
    window = _window(config, family)
    mixers = named(config, listed(config, "layer_types"), MIXERS, "layer_types")
    if not mixers:
        slides = family.slides(config) if family.slides else _slides(config)
        mixers = tuple(SLIDING if one else FULL for one in slides)
    if window is None:
        mixers = tuple(FULL if one == SLIDING else one for one in mixers)
    return mixers, window if SLIDING in mixers else None


def _window(config: HfConfig, family: Family) -> int | None:
    """Tokens of the window; `use_sliding_window` may switch it off."""
    if family.window is None:
        config.ignore("sliding_window", "use_sliding_window")
        return None
    defaults = {"use_sliding_window": None, "sliding_window": None}
    config = config.with_defaults(defaults)
    if config.optional_boolean("use_sliding_window") is False:
        return None
    name = alias_of(config, family.window)
    return config.with_defaults({family.window: None}).optional_integer(name)


def _slides(config: HfConfig) -> Sequence[bool]:
    """All layers, but for the last of every `sliding_window_pattern`."""
    name = alias_of(config, "sliding_window_pattern")
    period = config.with_defaults({name: None}).optional_integer(name)
    count = count_of_layers(config)
    return [period is None or (i + 1) % period != 0 for i in range(count)]


def dense_layers(config: HfConfig) -> Sequence[bool]:
    """Layers without experts, by whichever field says so."""
    count = count_of_layers(config)
    words = listed(config, "mlp_layer_types")
    if words:
        config.ignore("first_k_dense_replace", "num_dense_layers", "moe_layer_freq")
        return [_is_dense(config, word) for word in words]
    frequency = alias_of(config, "moe_layer_freq")
    if isinstance(config.values.get(frequency), list):
        flags = config.indices(frequency)
        of_length(config, frequency, len(flags))
        return [not flag for flag in flags]
    defaults = {"mlp_only_layers": None, "moe_layer_freq": 1, "first_k_dense_replace": 0}
    config = config.with_defaults(defaults)
    only = frozenset(config.indices("mlp_only_layers"))
    first = config.count(alias_of(config, "first_k_dense_replace"))
    period = config.integer(frequency)
    if first > count:
        raise SpecError(
            f"{config.where}: '{alias_of(config, 'first_k_dense_replace')}' = {first} exceeds the "
            f"{count} layers; lower it"
        )
    sparse = frequency == "decoder_sparse_step"
    return [
        i in only or i < first or bool((i + 1) % period if sparse else (i - first) % period)
        for i in range(count)
    ]


def _is_dense(config: HfConfig, word: str) -> bool:
    if word not in DENSE:
        raise UnsupportedError(
            f"{config.where}: 'mlp_layer_types' has {shown(word)}; known: {', '.join(DENSE)}"
        )
    return DENSE[word]


def unrotated(config: HfConfig) -> Fields:
    """Layers that `no_rope_layers` (1: rotated) leaves without positions, or every n-th."""
    defaults = {"no_rope_layers": None, "no_rope_layer_interval": 4}
    config = config.with_defaults(defaults)
    rotated, count = config.indices("no_rope_layers"), count_of_layers(config)
    if not rotated:
        return {"unrotated_layers": count // config.integer("no_rope_layer_interval")}
    of_length(config, "no_rope_layers", len(rotated))
    return {"unrotated_layers": rotated.count(0)}


def all_full(config: HfConfig) -> Sequence[Mixer]:
    """Full attention in every layer, whatever the file says of windows."""
    return [FULL for _ in range(count_of_layers(config))]


def every_other(config: HfConfig) -> Sequence[bool]:
    """The first of every two layers (Gemma 2, gpt-oss)."""
    return [i % 2 == 0 for i in range(count_of_layers(config))]
