"""The envelope of the published runs: of every axis the largest value that was ever measured.

Every axis is asked alone, so an answer inside the envelope may still be unlike any run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Literal

from trainplan.costmodel.catalog import published_runs
from trainplan.costmodel.documents import PublishedRun, Shape
from trainplan.costmodel.spec import Spec
from trainplan.planner.evidence.distance import architecture
from trainplan.planner.evidence.shape import family_of

Scope = Literal["any", "runtime", "gpu"]
"""All scored runs, those on runtimes of one family, those on GPUs of one architecture."""

OF_JOB: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: (name,) for name in ("num_gpus", "parameters", "seq_length")}
)
"""Sizes that a job states, by the fields of `Shape` whose product they are."""
OF_LAYOUT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tp": ("tp",),
        "pp": ("pp",),
        "vpp": ("vpp",),
        "pp * vpp": ("pp", "vpp"),
        "cp": ("cp",),
        "dp": ("dp",),
        "ep": ("ep",),
        "etp": ("etp",),
        "dp_replicate": ("dp_replicate",),
        "micro_batch_size": ("micro_batch_size",),
        "offload": ("offload_optimizer",),
    }
)
"""Numbers that a search chooses, by fields of `Shape` and columns of `LayoutTable` alike."""
WORDS: Mapping[str, Callable[[Shape], tuple[str, ...]]] = MappingProxyType(
    {
        "model": lambda shape: tuple(f"{kind} layers" for kind in shape.kind),
        "precision": lambda shape: (shape.precision,),
        "settings": lambda shape: shape.settings,
        "schedule": lambda shape: (f"schedule {shape.schedule}",),
        "zero_stage": lambda shape: (f"ZeRO-{shape.zero_stage}",),
        "recompute": lambda shape: tuple(f"recomputed {module}" for module in shape.recompute),
        "offload_modules": lambda shape: tuple(f"offloaded {m}" for m in shape.offload_modules),
    }
)
"""What is measured or not, and has no size."""
ALIKE = 1.01
"""Up to this factor sizes of jobs are alike. Source: assumed; records of one model differ by less,
in padded vocabularies and extra prediction layers."""
CHOSEN = frozenset({*OF_LAYOUT, "schedule", "zero_stage", "recompute", "offload_modules"})
"""Axes that a search chooses."""


class Beyond(Spec):
    """One axis in which an answer leaves what was measured."""

    axis: str
    """A field of the layout or the job, or a product of two."""
    scope: Scope
    """`any`: no scored run goes so far; `runtime`, `gpu`: none on runtimes of its family or on GPUs
    of its architecture."""
    value: float | str
    """Of the answer."""
    largest_measured: float | None
    """Null where the axis has no size, or no run is in the scope."""
    text: str
    """The same as a sentence."""

    @property
    def chosen(self) -> bool:
        """May another layout of the job stay inside?"""
        return self.axis in CHOSEN and self.scope != "gpu"


@dataclass(frozen=True, slots=True)
class Envelope:
    """The largest values of some runs, and all that has no size."""

    num_runs: int
    largest: Mapping[str, float]
    words: Mapping[str, frozenset[str]]


def envelope(shapes: Sequence[Shape]) -> Envelope:
    """That of at least one run."""
    axes = {**OF_JOB, **OF_LAYOUT}
    return Envelope(
        num_runs=len(shapes),
        largest={name: max(number(s, names) for s in shapes) for name, names in axes.items()},
        words={name: frozenset(w for s in shapes for w in of(s)) for name, of in WORDS.items()},
    )


def number(shape: Shape, names: Sequence[str]) -> float:
    """The product of some fields."""
    value: float = getattr(shape, names[0])
    for name in names[1:]:
        value *= getattr(shape, name)
    return value


@dataclass(frozen=True)
class Measurements:
    """The scored runs, and the envelopes of all, of each family of runtimes and of GPUs."""

    runs: tuple[PublishedRun, ...]

    @cached_property
    def all(self) -> Envelope:
        """That of all runs."""
        return envelope([run.shape for run in self.runs])

    @cached_property
    def by_family(self) -> Mapping[str, Envelope]:
        """By the family of their runtime."""
        return self._by(lambda shape: family_of(shape.runtime))

    @cached_property
    def by_architecture(self) -> Mapping[str, Envelope]:
        """By the architecture of their GPU."""
        return self._by(lambda shape: architecture(shape.gpu))

    def _by(self, key: Callable[[Shape], str]) -> Mapping[str, Envelope]:
        groups: dict[str, list[Shape]] = {}
        for run in self.runs:
            groups.setdefault(key(run.shape), []).append(run.shape)
        return {name: envelope(shapes) for name, shapes in groups.items()}

    def beyond(self, shape: Shape) -> tuple[Beyond, ...]:
        """Where an answer leaves what was measured, each axis in the widest scope that it leaves.

        Axes come in the order of their scopes.
        """
        family, gpus = family_of(shape.runtime), architecture(shape.gpu)
        scopes: tuple[tuple[Scope, str, Envelope | None], ...] = (
            ("any", "", self.all),
            ("runtime", f" on {family}", self.by_family.get(family)),
            ("gpu", f" on {gpus.replace(' ', ' and ')} GPUs", self.by_architecture.get(gpus)),
        )
        found: dict[str, Beyond] = {}
        for scope, where, inside in scopes:
            if inside is None:
                text = f"no scored run is{where}"
                found[scope] = Beyond(
                    axis=scope, scope=scope, value=where[4:], largest_measured=None, text=text
                )
                continue
            for one in (*_larger(shape, inside, scope, where), *_new(shape, inside, scope, where)):
                found.setdefault(one.axis, one)
        return tuple(found.values())


def _larger(shape: Shape, inside: Envelope, scope: Scope, where: str) -> Iterator[Beyond]:
    """Numbers above the largest of an envelope."""
    for name, names in {**OF_JOB, **OF_LAYOUT}.items():
        value, largest = number(shape, names), inside.largest[name]
        if value > largest * (ALIKE if name in OF_JOB else 1.0):
            text = f"no scored run{where} has {name} > {_short(largest)} (here {_short(value)})"
            yield Beyond(axis=name, scope=scope, value=value, largest_measured=largest, text=text)


def _new(shape: Shape, inside: Envelope, scope: Scope, where: str) -> Iterator[Beyond]:
    """Words that no run of an envelope has."""
    for name, of in WORDS.items():
        words = [word for word in of(shape) if word not in inside.words[name]]
        if words:
            value = ", ".join(words)
            text = f"no scored run{where} has {value}"
            yield Beyond(axis=name, scope=scope, value=value, largest_measured=None, text=text)


def _short(value: float) -> str:
    """A count, or a large one in billions."""
    return f"{value / 1e9:.4g}e9" if value >= 1e9 else f"{value:,.6g}"


@cache
def measurements() -> Measurements:
    """Those of the catalog."""
    return Measurements(published_runs())
