"""What a search must respect with the job."""

from functools import lru_cache
from typing import Literal

from pydantic import Field

from trainplan.costmodel.base import Identical, unknown_name
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import Rule
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.spec import Spec
from trainplan.costmodel.uncertainty import FIT_CHANCE, margin_of
from trainplan.planner.evidence import (
    OPTION,
    STATED_SETTINGS,
    published_rules,
    settings_rules,
    trusted_rules,
)
from trainplan.planner.plan.target import Name
from trainplan.planner.runtimes import TRAINERS, launch_rules
from trainplan.planner.settings import Combination, Level, combinations
from trainplan.planner.space import Choice, rules_of_grid

TIMED = ("time", "cost", "gpus", "context")
"""Objectives that fall with the step time."""


class SearchOptions(Spec):
    """What a search must respect with the job."""

    memory_margin: float | None = None
    """Share of device memory that must stay free; null: as `fit_chance` needs."""
    fit_chance: float = FIT_CHANCE
    """Chance to fit that a layout needs."""
    fit_p99: bool = False
    """The answer fits in 99 of 100 steps, too, as experts differ in load."""
    top: int = 10
    """Alternatives to list."""
    fix: tuple[Choice, ...] = ()
    exclude: tuple[Choice, ...] = ()
    trusted: bool = False
    """Only layouts that break no limit of what was measured."""
    published: bool = False
    """Only layouts like published ones: no limit of all runs, or of those of its kind of model, is
    broken. A search whose answer breaks one tries it."""
    generation: bool = False
    """With `published`: like those on GPUs of its architecture, too. A search whose answer is none
    of these and claims more than a tenth for it tries it."""
    objective: Name = "time"
    """What is best: least time, memory, money or energy, or fewest GPUs."""
    slack: float | None = Field(default=None, ge=0.0)
    """How much longer than the fastest step a step may take, as a fraction: the answer is the
    simplest layout within it, of `memory` the one that needs least. 0: the fastest. Null: 0.02 for
    `memory`, else 0.01."""
    deadline_days: float | None = Field(default=None, gt=0.0)
    """The run of `training.tokens` must end by then."""
    only_answer: bool = False
    """Leave out uneven stages, and all that is printed with the answer: other schedules, the order
    of the nodes, what would help where nothing fits."""
    tries_uneven: int | None = None
    """With `only_answer`: give some fast layouts uneven stages and open others until there are so
    many, which may not do for a proof; null: even stages alone."""
    search_options: Level = "safe"
    """Settings of the runtime that the search varies where the job states none."""
    priced_settings: bool = False
    """Settings of the job are what is priced: limits of published runs on them hold nothing."""
    tower: Literal["unified", "apart"] = "unified"
    """The tower runs on the first stage of the decoder, or on GPUs of its own."""
    whole_cluster: bool = False
    """All nodes are used, though fewer may be better."""
    near: Layout | None = None
    """The answer of a similar job: then layouts with its degrees are tried too."""

    only_written: bool = True
    """Only layouts that `plan export` writes, where it writes any for the runtime."""
    trainer: str | None = None
    """Only layouts and settings that this trainer has words for; null: the runtime itself runs."""

    def margin(self, job: Job) -> float:
        """Share of device memory that must stay free. Source: `margin_of`, where none is stated."""
        return margin_of(job, self.fit_chance) if self.memory_margin is None else self.memory_margin

    @property
    def slack_fraction(self) -> float:
        """The slack. Source: assumed; a quarter of the near-tie of similar layouts."""
        usual = 0.02 if self.objective == "memory" else 0.01
        return usual if self.slack is None else self.slack

    @property
    def takes_simplest(self) -> bool:
        """Is the answer the simplest layout within the slack, not the best?

        `memory` has its slack for another end, and joules are not seconds.
        """
        return not self.only_answer and self.slack_fraction > 0 and self.objective in TIMED

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Both kinds in order."""
        return (*self.fix, *self.exclude)

    @property
    def held(self) -> tuple[str, ...]:
        """What the search is held to, as on the command line."""
        trainer = [f"--trainer {self.trainer}"] if self.trainer else []
        return (*(one.rule().name for one in self.choices), *([OPTION] * self.trusted), *trainer)

    def trained(self, job: Job) -> Job:
        """The job as the trainer runs it.

        Raises:
            UnsupportedError: It can write no layout of it.
            CatalogError: There is none of that name.
        """
        name = self.trainer
        if name and name not in TRAINERS:
            raise unknown_name("trainer", name, TRAINERS, f"known: {', '.join(TRAINERS)}")
        return TRAINERS[name].runs(job) if name else job

    def combinations(self, on: Context) -> tuple[Combination, ...]:
        """Settings of the runtime that are searched: of those of evidence that some run had."""
        return _combinations(*map(Identical, (self, *on.shared)))

    def rules_of_evidence(self, on: Context) -> tuple[Rule, ...]:
        """Rules of `trusted`, or of `published`; none without them."""
        return self._rules_of_evidence(on.job)

    def required(self, job: Job) -> tuple[Rule, ...]:
        """What evidence wants of layouts under the settings of a job."""
        return settings_rules(self._rules_of_evidence(job), job)

    def _rules_of_evidence(self, job: Job) -> tuple[Rule, ...]:
        if self.trusted:
            return trusted_rules(job)
        if not self.published:
            return ()
        return published_rules(job, self.chosen, generation=self.generation)

    @property
    def chosen(self) -> frozenset[str]:
        """Fields that the user fixed, and whether settings are all the job's own."""
        settings = (STATED_SETTINGS,) if self.priced_settings else ()
        return frozenset((*(choice.field for choice in self.fix), *settings))

    def rules_of_layouts(self, on: Context) -> tuple[Rule, ...]:
        """What whole layouts must respect with the job."""
        return (*(choice.rule() for choice in self.choices), *self._rules_of_job(on))

    def rules_of_grid(self, on: Context) -> tuple[Rule, ...]:
        """What layouts must respect with the job, before their layers are split."""
        return (*rules_of_grid(self.choices), *self._rules_of_job(on))

    def _rules_of_job(self, on: Context) -> tuple[Rule, ...]:
        written = launch_rules(on.job) if self.only_written else ()
        words = TRAINERS[self.trainer].rules(on.job) if self.trainer else ()
        return (*self.rules_of_evidence(on), *written, *words)


@lru_cache(maxsize=16)
def _combinations(
    options: Identical[SearchOptions],
    job: Identical[Job],
    machine: Identical[Machine],
    traits: Identical[RuntimeTraits],
) -> tuple[Combination, ...]:
    """As `combinations`: an answer and its certificate need the same."""
    own, on = options.of, Context(job.of, machine.of, traits.of)
    writes = [TRAINERS[own.trainer].writes] if own.trainer else []
    return combinations(on, own.search_options, own.required, *writes)
