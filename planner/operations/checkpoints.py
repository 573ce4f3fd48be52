"""What another layout means for a checkpoint: `checkpoints.toml` has a row for each way to save."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import traits_of

Row = Mapping[str, Any]
Loads = Literal["as it is", "after", "weights alone", "no", "not known"]
"""Whole and at once; after a command; without states of the optimizer; never; not looked up."""
LOADS: Mapping[Loads, str] = {
    "as it is": "{} loads{} as it is",
    "after": "{} loads{} after a step",
    "weights alone": "of {} the weights alone load{}, which changes the training",
    "no": "{} does not load{}",
    "not known": "whether {} loads{} is not known",
}
"""Of which checkpoint, and where."""
NO_WEIGHTS = frozenset(
    ("name", "model_type", "read_by_fields", "rope_theta", "rope_scaling", "trained")
)
"""Fields of a model that no weight of a checkpoint has."""


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """A checkpoint of one plan in the hands of another."""

    loads: Loads
    why: str
    """What differs, in a clause; empty: nothing that counts."""
    commands: tuple[str, ...]
    """What makes it load, in order; OLD is where it lies, NEW and HF folders of yours."""
    source: str
    """What of the runtime says so."""

    def clause(self, checkpoint: str = "the checkpoint", where: str = "") -> str:
        """Does it load?"""
        return LOADS[self.loads].format(checkpoint, where)

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        because = f" ({self.why})" if self.why else ""
        after = f": {'; then '.join(self.commands)}" if self.commands else ""
        clause = self.clause("a checkpoint of the first", " in the second")
        return f"{clause[0].upper()}{clause[1:]}{because}{after}."


@dataclass(frozen=True, slots=True)
class Loadable:
    """Fields of layouts that may differ where one loads a checkpoint of another."""

    as_it_is: frozenset[str]
    after: frozenset[str]
    """With those that may differ after a command."""
    under_the_first: bool
    """That command is a run under the layout that saved, or under one that loads as it is."""
    zero_stages: tuple[int, ...]
    """Under which is saved in the same way."""
    bucket_mb: float | None
    """Size of gradient buckets that others have to state; null: any, or it is stated."""


@cache
def _table() -> Row:
    text = resources.files(__package__).joinpath("checkpoints.toml").read_text("utf-8")
    return tomllib.loads(text)


def checkpoint_note(runtime: str, layout: Layout) -> str:
    """What the checkpoints of a launch can be loaded by; empty: it was not looked up."""
    kind = _kind(runtime, layout)
    note: str = kind["note"] if kind else ""
    return note


def loadable(job: Job, layout: Layout) -> Loadable | None:
    """What may differ from a layout that saved; null: no way to save was looked up.

    `checkpoint_move` has the last word: of some fields the product alone may not differ.
    """
    kind = _kind(job.runtime, layout)
    if kind is None:
        return None
    as_it_is = frozenset((*_table()["neutral"], *kind["free"]))
    after: Row = kind.get("after", {"fields": ()})
    size, traits = _bucket(job, layout), traits_of(job)
    even = "even_buckets" in kind and size < math.inf and not job.options.bucket_mb
    return Loadable(
        as_it_is,
        as_it_is.union(after["fields"]),
        after.get("runs", False),
        kind["stages"],
        size * traits.gradients.message_bytes / 2**20 if even else None,
    )


def checkpoint_move(first: Job, one: Layout, second: Job, other: Layout) -> CheckpointMove:
    """What a checkpoint of the first plan needs before the second can load it."""
    if between := _between_jobs(first, second):
        return between
    before, after = _kind(first.runtime, one), _kind(second.runtime, other)
    if before is None or after is None:
        return _unknown(f"no way to save of {first.runtime} was looked up")
    if _states(first) != _states(second):
        return _weights(after, "optimizers or formats of states differ")
    if before is not after:
        return _converted(before, after, first.runtime)
    return _resharded(before, (first, one), (second, other))


def _between_jobs(first: Job, second: Job) -> CheckpointMove | None:
    """What their models or runtimes decide; null: nothing."""
    hidden = set(NO_WEIGHTS)
    shapes = [job.model.model_dump(mode="json", exclude=hidden) for job in (first, second)]
    if shapes[0] != shapes[1]:
        names = ", ".join(_different(*shapes))
        return CheckpointMove("no", f"their models differ: {names}", (), "")
    if first.model.trained != second.model.trained:
        return _unknown("they do not train the same weights")
    if first.runtime != second.runtime:
        return _through(first.runtime, second.runtime)
    return None


def _states(job: Job) -> tuple[object, ...]:
    """What says which states there are, and in which formats."""
    training, moments = job.training, job.options.moment_dtype
    return training.optimizer, training.state_precision, training.precision, moments


def _kind(runtime: str, layout: Layout) -> Row | None:
    """How the runtime saves."""
    rows: Iterable[Row] = _table()["kind"]
    fits = (
        row for row in rows if runtime in row["runtimes"] and layout.zero_stage in row["stages"]
    )
    return next(fits, None)


def _resharded(kind: Row, before: tuple[Job, Layout], later: tuple[Job, Layout]) -> CheckpointMove:
    """Both save alike: what differs, against what may."""
    one, other = before[1], later[1]
    changed = set(_different(one.model_dump(mode="json"), other.model_dump(mode="json")))
    changed -= {*_table()["neutral"], *kind["free"]}
    product = kind.get("product", ())
    if product and _product(one, product) == _product(other, product):
        changed -= set(product)
    after: Row = kind.get("after", {"fields": [], "command": ""})
    odd = sorted(changed.difference(after["fields"]))
    if odd:
        return _weights(kind, f"{', '.join(odd)}: not looked up")
    if "even_buckets" in kind and _bucket(*before) != _bucket(*later):
        changed.add("size of gradient buckets")
    command = after["command"]
    if before[0].islands != later[0].islands:
        changed.add("number of islands")
    if min(before[0].islands, later[0].islands) > 1:
        command = after.get("of_islands", command)
    if not changed:
        return CheckpointMove("as it is", "", (), kind["source"])
    why = f"another {', '.join(sorted(changed))}"
    return CheckpointMove("after", why, (command,), kind["source"])


def _bucket(job: Job, layout: Layout) -> float:
    """Gradients of a bucket; infinite: all are in one, as none is reduced beside passes.

    Source: Megatron-LM @d98e8a64 core/distributed/distributed_data_parallel.py, bucket_size, lines
    131 to 137; without a stated size that of `RuntimeTraits.usual_bucket_mb`.
    """
    if job.options.overlap_grad_reduce is False:
        return math.inf
    traits = traits_of(job)
    usual = traits.usual_bucket_mb(layout.dp * layout.cp) * 2**20
    return traits.bucket_elements(job) or round(usual / traits.gradients.message_bytes)


def _converted(before: Row, after: Row, runtime: str) -> CheckpointMove:
    """They save in different ways."""
    for row in _table()["conversion"]:
        if (
            runtime in row["runtimes"]
            and before["format"] in row["from"]
            and after["format"] == row["to"]
        ):
            why = f"{before['format']} to {after['format']}"
            return CheckpointMove("after", why, (row["command"],), row["source"])
    return _weights(after, f"{before['format']} to {after['format']}: not looked up")


def _through(first: str, second: str) -> CheckpointMove:
    """Other runtimes read the format of Hugging Face."""
    rows: Iterable[Row] = _table()["through"]
    out = next((row for row in rows if first in row["runtimes"]), None)
    into = next((row for row in rows if second in row["runtimes"]), None)
    if out is None or into is None:
        return _unknown(f"{first} to {second}: no conversion was looked up")
    commands = (out["export"], into["import"])
    sources = f"{out['source']}; {into['source']}"
    return CheckpointMove("weights alone", f"{first} to {second}", commands, sources)


def _weights(kind: Row, why: str) -> CheckpointMove:
    """Weights load where the runtime can leave the rest."""
    if "weights" not in kind:
        return _unknown(why)
    return CheckpointMove("weights alone", why, (kind["weights"],), kind["source"])


def _unknown(why: str) -> CheckpointMove:
    return CheckpointMove("not known", why, (), "")


def _different(one: Row, other: Row) -> list[str]:
    return [name for name in one if one[name] != other.get(name)]


def _product(layout: Layout, names: Iterable[str]) -> int:
    return math.prod(getattr(layout, name) for name in names)
