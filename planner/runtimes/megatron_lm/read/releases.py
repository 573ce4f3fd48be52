"""Options of older releases and of forks: what they mean to this release, or may change.

The table is `releases.toml`, with its sources.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any

from trainplan.costmodel.runtimes import pipeline_layout_string
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments, Given, shown
from trainplan.planner.runtimes.megatron_lm.read.cores import of_cores
from trainplan.planner.shell import COMMAND_LINE, Place, Problem, Word

NOOP, FIRST_DENSE, SHARED = "noop_layers", "first_k_dense_replace", "n_shared_experts"
LISTED = "num_layer_list"
VIRTUAL = (keys.VPP, "num_layers_per_virtual_pipeline_stage")
GATED_GELU = ("geglu", "gelu_tanh")
KINDS = ("nothing", "run", "model")
LARGEST_LIST = 4096
"""Entries of a list of layers that are read."""
FEW = 3
"""Of so many options with underscores a sentence tells; one or two are of the starter."""
SPELLED = 12
"""Options of one kind that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """One option that this release does not know, as it stands in a launch."""

    flag: str
    """As it is written."""
    place: Place
    near: str = ""
    """An option of this release that it may be a slip of."""


@cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Sections of the table."""
    text = resources.files("trainplan.planner.runtimes.megatron_lm").joinpath("releases.toml")
    return tomllib.loads(text.read_text("utf-8"))


def dashed(flag: str) -> str:
    """An option as this release would spell it: forks have underscores."""
    return flag[:2] + flag[2:].replace("_", "-")


def is_translated(flag: str) -> bool:
    """Does the table say what it means?"""
    return flag in table()["means"] or is_own(flag)


def meaning(flag: str, values: Sequence[Word]) -> str | None:
    """Words of this release that say the same; `{}` are its values; null: the table has none."""
    found = table()["means"].get(flag)
    if isinstance(found, Mapping):
        return found.get(values[0].text if values else "")
    return None if found is None else str(found)


def value_of(flag: str, word: Word) -> Word:
    """A value by the name that this release has for it."""
    text = table()["values"].get(flag, {}).get(word.text)
    return word if text is None else replace(word, text=text)


def instead(flag: str) -> str | None:
    """What to write, for a person."""
    found = table()["means"].get(flag, table()["instead"].get(flag))
    return None if isinstance(found, Mapping) or not found else str(found).replace(" {}", "")


def is_own(flag: str) -> bool:
    """Does the reader take it by itself?"""
    return flag in table()["own"]


def kind(flag: str) -> str:
    """What an unknown option may change: `priced_as`, `nothing`, `model`, `run`, or empty."""
    name, sections = dashed(flag), table()
    if name in sections["priced_as"]:
        return "priced_as"
    words = {*name[2:].lower().split("-")}
    exact = (one for one in KINDS if name in sections[one]["options"])
    alike = (one for one in KINDS if words & {*sections[one]["words"]})
    return next(chain(exact, alike), "")


def own_words(own: Iterable[str]) -> dict[str, str]:
    """Options that the reader takes by itself, and what they mean."""
    return {flag: table()["own"][flag] for flag in (f"--{name.replace('_', '-')}" for name in own)}


def foreign_problems(unknown: Sequence[Foreign], read: Mapping[str, str]) -> Iterator[Problem]:
    """What the options are that this release does not know; `read`: those taken, and as what."""
    kinds = {one: kind(dashed(one.flag)) for one in unknown}
    model = [one for one in unknown if kinds[one] == "model"]
    if model:
        says = (
            f"{listed(model)}: own of a fork or another release; the price is of a model without, "
            "which it may change"
        )
        yield Problem("unread_model_option", "unread", says, model[0].place)
    for one in unknown:
        if kinds[one] == "priced_as":
            flag = dashed(one.flag)
            says = f"{flag}, own of a fork: {table()['priced_as'][flag]}"
            yield Problem(f"unmodelled_{flag[2:].replace('-', '_')}", "unmodelled", says, one.place)
    run = [one for one in unknown if kinds[one] == "run"]
    if run:
        says = f"{listed(run)}: own of a fork or another release; may move memory and time"
        yield Problem("unread_run_option", "unread", says, run[0].place)
    others = [one for one in unknown if kinds[one] in ("nothing", "")]
    if others:
        says = f"{listed(others)}: own of a fork or another release; the price is without"
        yield Problem("unknown_flag", "unread", says, others[0].place)
    if read:
        some = list(read.items())[:SPELLED]
        pairs = ", ".join(f"{shown(flag)} as {text or 'nothing'}" for flag, text in some)
        more = ", ..." if len(read) > SPELLED else ""
        says = f"of a fork or another release, and read: {pairs}{more}"
        yield Problem("other_release", "unread", says)


def spelling(underscored: Sequence[Word]) -> Iterator[Problem]:
    """That options are spelled as a fork spells them."""
    if len(underscored) >= FEW:
        name = shown(underscored[0].text)
        says = f"{name} and others with underscores, as a fork has them: read as with dashes"
        yield Problem("other_spelling", "unread", says, underscored[0].place)


def listed(options: Sequence[Foreign | str]) -> str:
    """Options in a sentence: each once, and of many the first."""
    texts = ((one, "") if isinstance(one, str) else (one.flag, one.near) for one in options)
    flags = ((flag, f" (is it {near}?)" if near else "") for flag, near in texts)
    names = list(dict.fromkeys(f"{shown(one, 80)}{of_cores(one)}{near}" for one, near in flags))
    more = f" and {len(names) - SPELLED} more" if len(names) > SPELLED else ""
    return f"{', '.join(names[:SPELLED])}{more}"


def applied(arguments: Arguments, *, unbiased: bool) -> Arguments:
    """With what options of forks say of layers and experts, in the words of this release.

    A fork with underscores has biases where they are told, this release where they are not taken
    out.
    """
    found = dict(arguments.given)
    if unbiased and "use_bias" not in arguments.own:
        found[keys.BIASES] = Given(value=False, flag="--use-bias", written="", place=COMMAND_LINE)
    own, layers = arguments.own, arguments.count(keys.LAYERS)
    if arguments.text(keys.RECOMPUTE) == "full" and keys.RECOMPUTED_LAYERS not in found:
        found[keys.RECOMPUTED_LAYERS] = replace(found[keys.RECOMPUTE], value=1)
    if FIRST_DENSE in own and layers:
        every = arguments.whole(keys.EXPERT_LAYERS) or 1
        first = _number(own[FIRST_DENSE])
        freq = tuple(int(i >= first and i % every == 0) for i in range(min(layers, LARGEST_LIST)))
        found[keys.EXPERT_LAYERS] = replace(own[FIRST_DENSE], value=freq)
    if SHARED in own:
        width = arguments.count(keys.EXPERT_FFN) or arguments.count(keys.FFN)
        whole = _number(own[SHARED]) * width
        found[keys.SHARED_EXPERT] = replace(own[SHARED], value=whole)
    if LISTED in own and not found.keys() & {keys.STAGES, *VIRTUAL}:
        counts = tuple(int(one) for one in re.findall(r"\d{1,4}", str(own[LISTED].value)))
        if counts and sum(counts) == layers and len(counts) == arguments.count(keys.PP, 1):
            text = pipeline_layout_string(counts, arguments.count(keys.PREDICTIONS))
            found[keys.STAGES] = replace(own[LISTED], value=text)
    arguments = replace(arguments, given=found)
    return _without_noops(arguments, own[NOOP]) if NOOP in own and layers else arguments


def _without_noops(arguments: Arguments, noop: Given) -> Arguments:
    """Fewer layers: stages keep their places, so those with such layers hold fewer."""
    found, layers = dict(arguments.given), arguments.count(keys.LAYERS)
    empty = {int(one) for one in re.findall(r"\d{1,4}", str(noop.value)) if int(one) < layers}
    kept = [layer for layer in range(min(layers, LARGEST_LIST)) if layer not in empty]
    found[keys.LAYERS] = replace(found[keys.LAYERS], value=len(kept))
    freq = arguments.value(keys.EXPERT_LAYERS)
    if isinstance(freq, tuple) and len(freq) == layers:
        less = tuple(freq[layer] for layer in kept)
        found[keys.EXPERT_LAYERS] = replace(noop, value=less)
    pp = max(1, arguments.count(keys.PP, 1))
    each = arguments.count("num_layers_per_virtual_pipeline_stage")
    stages = layers // each if each else pp * max(1, arguments.count(keys.VPP, 1))
    if stages > 1 and layers % stages == 0:
        size = layers // stages
        counts = tuple(sum(layer // size == stage for layer in kept) for stage in range(stages))
        text = pipeline_layout_string(counts, arguments.count(keys.PREDICTIONS))
        found[keys.STAGES] = replace(noop, value=text)
        for split in VIRTUAL:
            found.pop(split, None)
    return replace(arguments, given=found)


def _number(given: Given) -> int:
    text = str(given.value)
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0
