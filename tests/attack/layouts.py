"""Random changes of a layout: what an attack tries beside the answer of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
from pydantic import ValidationError

from tests.attack.declared import settings_of
from trainplan.costmodel.axes import AXES, Held
from trainplan.costmodel.axes.values import degrees
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import Layout, StageSpec
from trainplan.costmodel.layouts.table import LayoutTable, layers_per_stage
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.planner.space import Choice, Space
from trainplan.planner.space.choices import rules_of_job

DEGREES = ("tp", "cp", "pp", "dp")
TOGETHER = (*DEGREES, "vpp", "schedule", "offload.optimizer", "stages")
"""Axes with moves of their own, as are those of recomputation; of all others one value changes."""
MOST_MOVED = 4
"""Layers moved between stages at once."""


def text_of(layout: Layout) -> str:
    """The layout as `plan estimate --layout` takes it."""
    return ",".join(f"{a.option}={a.text(layout)}" for a in AXES if not a.is_off(layout)) or "tp=1"


class Changes:
    """Random neighbours of layouts of one job, legal ones alone."""

    def __init__(self, job: Job, random: Random, choices: Sequence[Choice] = ()) -> None:
        self.job, self.random = job, random
        self.rules = (*(choice.rule() for choice in choices), *rules_of_job(job))
        self.traits, self.space = traits_of(job), Space(context_for(job))
        self.values = _values(job)
        self.kinds = (
            self._degrees,
            self._value,
            self._value,
            self._pipeline,
            self._recompute,
            self._offload,
            self._stages,
            self._stages,
            self._stages,
        )

    def of(self, layout: Layout, count: int) -> list[Layout]:
        """Some legal neighbours, one to three changes away."""
        found: dict[Layout, None] = {}
        for _ in range(20 * count):
            changed = layout
            for _ in range(self.random.choice((1, 1, 1, 2, 3))):
                changed = self._changed(changed)
            if changed != layout:
                found[changed] = None
            if len(found) >= count:
                break
        return self.legal(list(found))

    def legal(self, layouts: list[Layout]) -> list[Layout]:
        """Those that break no rule."""
        if not layouts:
            return []
        table = LayoutTable.of(layouts)
        broken = np.any([rule.broken(self.job, table) for rule in self.rules], axis=0)
        return [layouts[row] for row in np.flatnonzero(~broken).tolist()]

    def any(self, tries: int = 400) -> Layout | None:
        """A legal layout, found by a random walk from the plainest."""
        walked = [Layout(dp=self.job.cluster.num_gpus)]
        for _ in range(tries):
            walked.append(self._changed(walked[-1]))
        return next(reversed(self.legal(walked[1:])), None)

    def _changed(self, layout: Layout) -> Layout:
        values = {**dict(layout), **self.random.choice(self.kinds)(layout)}
        try:
            return Layout.model_validate(values)
        except ValidationError:  # such values never go together
            return layout

    def _degrees(self, layout: Layout) -> dict[str, object]:
        """A factor goes from one degree to another; even stages, since there are others."""
        less, more = self.random.sample(DEGREES, 2)
        held = getattr(layout, less)
        factors = [f for f in (2, 3, 5, 7) if held % f == 0]
        if not factors:
            return {}
        factor = self.random.choice(factors)
        return {less: held // factor, more: getattr(layout, more) * factor, **self._even(layout)}

    def _even(self, layout: Layout) -> dict[str, object]:
        return {"stages": None} if layout.stages else {}

    def _value(self, layout: Layout) -> dict[str, object]:
        """Another value of one axis."""
        name = self.random.choice(list(self.values))
        value = self.random.choice(self.values[name])
        whole, _, part = name.partition(".")
        return {whole: layout.offload.model_copy(update={part: value}) if part else value}

    def _pipeline(self, layout: Layout) -> dict[str, object]:
        vpp = self.random.choice(self.space.virtual_stages(layout.pp))
        names = [
            name
            for name in self.traits.pipeline.schedules
            if SCHEDULES[name].least_vpp <= vpp <= SCHEDULES[name].most_vpp
        ]
        if not names or layout.pp == 1:
            return {"vpp": 1, "schedule": "1f1b", **self._even(layout)}
        return {"vpp": vpp, "schedule": self.random.choice(names), **self._even(layout)}

    def _recompute(self, layout: Layout) -> dict[str, object]:
        plain: dict[str, object] = {
            "recompute": "none",
            "recompute_modules": (),
            "recompute_method": None,
            "recompute_num_layers": None,
        }
        number = self.random.randint(
            1, -(-self.space.job.model.num_hidden_layers // (layout.pp * layout.vpp))
        )
        whole = {**plain, "recompute": "full", "recompute_num_layers": number}
        subsets = self.space.recompute_subsets or ((),)
        some = {"recompute": "selective", "recompute_modules": self.random.choice(subsets)}
        method = self.random.choice(("uniform", "block"))
        return self.random.choice((plain, {**plain, **some}, {**whole, "recompute_method": method}))

    def _offload(self, layout: Layout) -> dict[str, object]:
        now = layout.offload.optimizer
        fraction = self.random.choice(
            (0.0, self.random.random(), now + self.random.gauss(0, 0.01), now - 0.001)
        )
        step = self.traits.offloading.optimizer_step
        if step is None:
            return {}
        steps = round(min(1.0, max(0.0, fraction)) / step)  # the space is one of steps
        share = self.random.choice((steps / round(1 / step), 1.0))
        return {"offload": layout.offload.model_copy(update={"optimizer": share})}

    def _stages(self, layout: Layout) -> dict[str, object]:
        """A layer goes from one virtual stage to another, whatever the others of their ranks."""
        count = layout.pp * layout.vpp
        few = count <= self.job.model.num_hidden_layers
        if layout.pp == 1 or not few or not self.traits.pipeline.splits_freely:
            return {}
        layers = [stage.layers for stage in layout.stages or ()]
        layers = layers or list(layers_per_stage(self.job.model.num_hidden_layers, count))
        for _ in range(self.random.randint(1, MOST_MOVED)):
            away = self.random.choice([i for i, held in enumerate(layers) if held])
            to = self.random.randrange(count)
            layers[away] -= 1
            layers[to] += 1
        if not all(layers[1:-1]):
            return {}
        own = layout.recompute_method == "block" and self.traits.recompute.by_stage
        number = (self.random.randint(0, held) if own else None for held in layers)
        pairs = zip(layers, number, strict=True)
        return {"stages": [StageSpec(layers=n, recompute_num_layers=r) for n, r in pairs]}


def _values(job: Job) -> dict[str, Sequence[object]]:
    """Values of the axes that change one by one, also of those that a search tries on request."""
    wide = {
        "may_offload_activations": True,
        "may_replicate_shards": True,
        "may_shard_matrices": True,
    }
    job, traits = job.model_copy(update=wide), traits_of(job)
    values = {
        axis.name: degrees(job, traits)
        if isinstance(axis.search, Held)
        else axis.tried(job, traits)
        for axis in AXES
        if axis.name not in TOGETHER and not axis.name.startswith("recompute")
    }
    return {name: some for name, some in values.items() if len(some) > 1}


def with_other_settings(original: Job, now: Job, random: Random) -> Job:
    """Another value of one option that the job leaves to its runtime, or of all of them."""
    values: dict[str, list[str | bool | None]] = {}
    for one in traits_of(original).settings:
        if getattr(original.options, one.name) is None:
            values.setdefault(one.name, [None]).append(one.value)
    names = [random.choice(list(values))] if values and random.random() < 0.5 else list(values)
    update = {name: random.choice(values[name]) for name in names}
    changed = now.model_copy(update={"options": now.options.model_copy(update=update)})
    lacking = any(one.refused(changed) is not None for one in settings_of(original, changed))
    return now if lacking else changed


def compositions(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Layers of every stage in all ways; the first and the last one may be empty."""
    if stages == 1:
        yield (layers,)
        return
    for first in range(layers + 1):
        yield from ((first, *rest) for rest in _behind(layers - first, stages - 1))


def _behind(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    if stages == 1:
        yield (layers,)
        return
    for held in range(1, layers + 1):
        yield from ((held, *rest) for rest in _behind(layers - held, stages - 1))
