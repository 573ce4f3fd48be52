"""Families by tables without code: constants.toml, and formulas.toml with formulas of fields.

There `more` and `more_experts` give fields of `ModelSpec` and `MoeSpec`, `parts` those of a mixer:
numbers, or formulas of fields; `side_products` pairs of formulas. `kinds` are kinds of layer: a
mixer, what feeds forward unless the usual fields say so, and fields of `LayerKind`. `words` says
which of them each word of the lists `field`, joined by `+`, is (over and over if it `repeats`), or
`all` which every layer is; `feeds` what a layer has with an MLP or experts; `choices` what words of
other fields mean. Of a kind with `shared` so many have weights, and the others repeat them but for
`own_weights`; `loop` is the first layer, the layers and the times of a part that runs several
times. All else is as in `Family`.
"""

import ast
import operator
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from importlib.resources import files
from typing import Any, Final

from trainplan.costmodel.architecture import (
    FeedForward,
    IndexerSpec,
    LinearAttentionSpec,
    Mixer,
    ModelSpec,
    SsmSpec,
)
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families.family import Family, Fields
from trainplan.costmodel.families.layers import count_of_layers, listed
from trainplan.costmodel.families.reader import HfConfig

Table = Mapping[str, Any]
PARTS: Final[Mapping[str, type[IndexerSpec | SsmSpec | LinearAttentionSpec]]] = {
    "indexer": IndexerSpec,
    "ssm": SsmSpec,
    "linear_attention": LinearAttentionSpec,
}
WORDS: Final = ("mixer", "feed_forward", "rule")
"""Fields of specs that are no numbers."""
OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def value_of(config: HfConfig, formula: str) -> float:
    """A formula of fields of a file, where one that is true is 1.

    Raises:
        SpecError: A field is missing, no number, or zero where it divides.
    """
    try:
        found = _value(config, ast.parse(formula, mode="eval").body)
    except (ZeroDivisionError, IndexError):
        raise SpecError(f"{config.where}: {formula} is no size: correct one of these") from None
    return int(found) if not isinstance(found, bool) and found == int(found) else found


def _value(config: HfConfig, node: ast.expr) -> float:
    match node:
        case ast.BinOp():
            left, right = _value(config, node.left), _value(config, node.right)
            return OPERATORS[type(node.op)](left, right)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
            return config.indices(name)[place]
        case ast.Name(id=name):
            given = {**config.defaults, **config.values}.get(name)
            if isinstance(given, bool):
                return config.boolean(name)
            return config.number(name) if isinstance(given, float) else config.count(name)
        case ast.Constant(value=int(number)):
            return number
    raise TypeError(ast.dump(node))


def _sizes(table: Table, config: HfConfig) -> dict[str, Any]:
    """Fields of a spec: words, truths, and numbers by their formulas; products without a zero."""
    found: dict[str, Any] = {}
    for name, formula in table.items():
        if name == "side_products":
            pairs = ([int(value_of(config, one)) for one in pair] for pair in formula)
            found[name] = tuple((one, other) for one, other in pairs if one and other)
        elif isinstance(formula, str) and name not in WORDS:
            found[name] = None if formula == "null" else value_of(config, formula)
            if (found[name] or 0) < 0:
                raise SpecError(f"{config.where}: '{name}' = {formula} is negative: correct these")
        else:
            found[name] = formula
    return found


def _more(table: Table, config: HfConfig) -> Fields:
    parts = {
        name: PARTS[name].model_validate(_sizes(sizes, config))
        for name, sizes in table.get("parts", {}).items()
    }
    found = {**_sizes(table.get("more", {}), config), **parts}
    for field, known in table.get("choices", {}).items():
        word = str(config.values.get(field)).lower()
        config.ignore(field)
        if word not in known:
            raise config.wrong(field, word, f"one of {', '.join(known)}")
        found |= known[word]
    if "kinds" in table:
        found["num_hidden_layers"] = len(_layers(table, config))
    return found


def _layers(table: Table, config: HfConfig) -> list[dict[str, Any]]:
    """Fields of `LayerKind` of every layer of ours, in order."""
    count, known = count_of_layers(config), table.get("words", {})
    order: list[Sequence[str]] = [table.get("all", ())] * count
    if known:
        field, always = table["field"], set(table.get("always", ()))
        lists = [config.texts(one) if "repeats" in table else listed(config, one) for one in field]
        words = ["+".join(several) for several in zip(*lists, strict=False)]
        if not words or set(words) - set(known) or always - set(words):
            raise config.wrong(", ".join(field), words, f"list of {', '.join(sorted(known))}")
        order = [known[words[i % len(words)]] for i in range(count)]
    first, length, times = (
        int(value_of(config, one)) for one in table.get("loop", ("0", "0", "1"))
    )
    if not 0 < times <= ModelSpec.MOST_LAYERS:
        wanted = f"positive integer of at most {ModelSpec.MOST_LAYERS:,}"
        raise config.wrong(str(table["loop"][2]), times, wanted)
    order[first + length : first + length] = order[first : first + length] * (times - 1)
    found, used = [], Counter[str]()
    for place, name in ((place, name) for place, names in enumerate(order) for name in names):
        layer = _sizes(table["kinds"][name], config)
        own, most = layer.pop("own_weights", 0), layer.pop("shared", len(order))
        again = used[name] >= most or first + length <= place < first + length * times
        found.append(layer | ({"own_weights": own} if again else {}))
        used[name] += 1
    return found


def _mixers(table: Table, config: HfConfig) -> Sequence[Mixer]:
    return [layer["mixer"] for layer in _layers(table, config)]


def _feeds(table: Table, config: HfConfig) -> Sequence[FeedForward]:
    return [layer["feed_forward"] for layer in _layers(table, config)]


def _each(
    table: Table, config: HfConfig, mixers: Sequence[Mixer], feeds: Sequence[FeedForward]
) -> Sequence[Fields]:
    """Of the kind of each layer, with what its feed-forward block adds."""
    layers = _layers(table, config) if "kinds" in table else [{} for _ in mixers]
    for layer, feed in zip(layers, feeds, strict=True):
        for name, more in _sizes(table.get("feeds", {}).get(feed, {}), config).items():
            layer[name] = layer[name] + more if name in layer else more
    parts = ("mixer", "feed_forward")
    return [{key: one for key, one in layer.items() if key not in parts} for layer in layers]


def _family(table: Table) -> Family:
    """One table as a family."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in table.items()
        if name in {one.name for one in fields(Family)}
    }
    if {"more", "parts", "choices", "kinds"} & table.keys():
        given["more"] = partial(_more, table)
    if "more_experts" in table:
        given["more_experts"] = partial(_sizes, table["more_experts"])
    if "kinds" in table:
        given["mixers"] = partial(_mixers, table)
        if all("feed_forward" in kind for kind in table["kinds"].values()):
            given["feed_forwards"] = partial(_feeds, table)
    if "kinds" in table or "feeds" in table:
        given["each"] = partial(_each, table)
    return Family(**given)


def _families(name: str) -> Mapping[str, Family]:
    text = files("trainplan.costmodel.families").joinpath(f"tables/{name}").read_text("utf-8")
    return {model_type: _family(table) for model_type, table in tomllib.loads(text).items()}


FORMULAS: Final = {**_families("constants.toml"), **_families("formulas.toml")}
"""`model_type` -> what its code fixes."""
