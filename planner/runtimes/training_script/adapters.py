"""Adapters that the arguments of a script add, and what else of them changes what is trained."""

from collections.abc import Container, Mapping
from typing import NamedTuple

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.job import with_trained
from trainplan.planner.runtimes.keys import Entry, Notes
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.runtimes.training_script.names import NAMES, TOWER, sees
from trainplan.planner.runtimes.training_script.script import OFF, Script

ADAPTERS = NAMES["adapters"]
WHOLE = ("full", *OFF)
"""Values of a method that add no adapters."""
DEGREE = "ranks of the trainer's own along this dimension are not priced: the price is without"
FROZEN_TOWER = "frozen:tower"
FROZEN = "what is frozen is not priced: the price trains every weight"
METHODS = ("lora", "qlora")
"""Those that are priced."""


class Adapters(NamedTuple):
    """What is added, as the script says it."""

    entry: Entry
    """The option that adds them, with its value."""
    rank: int
    modules: str
    """As `--train` takes them."""


def check_options(notes: Notes, script: Script, priced: Container[str] = ()) -> None:
    """Name what is stated and not priced, but for what the runtime prices."""
    unpriced = {name: what for name, what in NAMES["unpriced"].items() if name not in priced}
    _named(notes, script, unpriced)
    _named(notes, script, dict.fromkeys(NAMES["degrees"], DEGREE), ("1", "-1"))
    attention = script.text(*NAMES["attention"])
    if attention and str(attention.value).lower() not in (*NAMES["fused_attention"], *OFF):
        says = f"{attention.written}: priced as fused attention"
        notes.problem("attention", "unmodelled", says, attention.place)


def check_tower(notes: Notes, script: Script, model: ModelSpec) -> None:
    """Name the tower of a model that is priced as one of language alone."""
    entry, named = script.text(*NAMES["model"]), script.text(*NAMES["tower"])
    if named is None and entry is not None and sees(str(entry.value)):
        named = entry
    if model.tower is None and named and str(named.value).lower() not in ("none", "null", ""):
        notes.problem("not_priced", "unmodelled", f"{named.written}: {TOWER}", named.place)


def _named(
    notes: Notes, script: Script, unpriced: Mapping[str, str], off: tuple[str, ...] = ()
) -> None:
    for name, what in unpriced.items():
        stated = script.text(name)
        if stated and str(stated.value).lower() not in (*OFF, *off):
            notes.problem("not_priced", "unmodelled", f"{stated.written}: {what}", stated.place)


def trained_of(notes: Notes, request: Request, script: Script, model: ModelSpec) -> ModelSpec:
    """The model with what is trained of it: as the user says, else as the arguments do."""
    entry = Entry(None, "assumed")
    if request.train is not None:
        model = with_trained(model, request.train)
    elif model.trained is None and (added := _adapters(notes, script)):
        entry, model = added.entry, _adapted(notes, script, model, added)
    if model.trained is None:
        _named(notes, script, dict.fromkeys(NAMES["frozen"], FROZEN))
    value = getattr(model.trained, "text", "full")
    notes.note("model.trained", entry._replace(value=value))
    return model


def _adapters(notes: Notes, script: Script) -> Adapters | None:
    """Null: there are none."""
    own, method = _added(notes, script)
    if own is None:
        return None
    rank = script.number(notes, *ADAPTERS["ranks"])
    usual = ADAPTERS["switches"] | ADAPTERS["methods"]
    defaults = usual.get(method, {"rank": 8, "modules": "all"})
    if rank is None:
        says = f"{own.written} states no rank: {defaults['rank']} is taken"
        notes.problem("adapter_rank", "unread", says, own.place)
    stated = [word for name in ADAPTERS["modules"] for word in script.words(name)]
    text = ",".join(stated).strip("[]'\" ").replace(" ", ",") or defaults["modules"]
    modules = "all" if text in ADAPTERS["all"] else text
    return Adapters(own, int(str(rank.value)) if rank else defaults["rank"], modules)


def _added(notes: Notes, script: Script) -> tuple[Entry | None, str]:
    """What adds adapters, by its value and its name; null: nothing does.

    A switch decides where the script has one; else a rank does.
    """
    decided = False
    for name in (*ADAPTERS["switches"], *ADAPTERS["methods"]):
        stated = script.text(name)
        if stated is None:
            continue
        decided, value = True, str(stated.value).lower()
        if value in WHOLE:
            continue
        if name in ADAPTERS["methods"] and value not in METHODS:
            says = f"{stated.written}: what it trains is not priced: the price trains every weight"
            notes.problem("adapters", "unmodelled", says, stated.place)
            continue
        return stated, name
    ranks = (script.text(name) for name in ADAPTERS["ranks"])
    stated = next((one for one in ranks if one and str(one.value) not in ("0", *OFF)), None)
    return (None, "") if decided or stated is None else (stated, "")


def _adapted(notes: Notes, script: Script, model: ModelSpec, added: Adapters) -> ModelSpec:
    """The model with adapters; modules it does not have are priced as all."""
    four = ADAPTERS["four_bits"].items()
    narrow = any((one := script.text(name)) and str(one.value) in values for name, values in four)
    method = "qlora" if narrow or str(added.entry.value).lower() == "qlora" else "lora"
    if model.tower is not None:
        model = with_trained(model, FROZEN_TOWER)
    start = f"{method}:rank={added.rank},modules="
    found, reason = _trained(model, start + added.modules)
    if found is None:
        words = [word for word in added.modules.split(",") if _trained(model, start + word)[0]]
        modules = ",".join(words) or "all"
        says = f"{added.entry.written}: {reason}; priced with {modules}"
        notes.problem("adapter_modules", "unmodelled", says, added.entry.place)
        found, reason = _trained(model, start + modules)
    if found is None:
        says = f"{added.entry.written}: {reason}; the price trains every weight"
        notes.problem("adapters", "unmodelled", says, added.entry.place)
    return found or model


def _trained(model: ModelSpec, text: str) -> tuple[ModelSpec | None, str]:
    """The model with what a text says is trained; else why it cannot be."""
    try:
        return with_trained(model, text), ""
    except PlanError as error:
        return None, str(error).partition("; this model takes")[0]
