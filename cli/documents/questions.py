"""Documents of `plan explain`, `plan why-not`, `plan compare` and `plan check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainplan.cli.documents.parts import Document, Notes, OfJob, Priced, Remedy, WrittenLayout
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.planner.questions.compare import FieldDifference, TermDifference
from trainplan.planner.questions.explain import Resource
from trainplan.planner.questions.imbalance import Imbalance
from trainplan.planner.questions.largest_model import LargestModel
from trainplan.planner.questions.outcome import Status
from trainplan.planner.questions.sequence_lengths import SequenceLengths
from trainplan.planner.questions.why_not import Verdict
from trainplan.planner.runtimes.corrected import SettingChange
from trainplan.planner.runtimes.reading import Origin
from trainplan.planner.shell import Verdict as ProblemVerdict


@dataclass(frozen=True, kw_only=True)
class Share(Document):
    """What a resource takes of the step."""

    resource: Resource
    time_s: float
    fraction: float


@dataclass(frozen=True, kw_only=True)
class MemoryLimit(Document):
    """The fullest rank."""

    pipeline_rank: int
    margin_fraction: float
    """Of the capacity, which must stay free."""
    usable_bytes: float
    headroom_bytes: float
    binds: bool | None
    """Would more memory buy time? Null: not tried."""


@dataclass(frozen=True, kw_only=True)
class Effect(Document):
    """What a change gives."""

    layout: Layout
    step_time_s: float
    throughput_gain_fraction: float
    """In tokens per second of the whole job."""
    per_gpu_gain_fraction: float


@dataclass(frozen=True, kw_only=True)
class ShadowPrice(Document):
    """What a change of the job would buy."""

    KEYS = "shadow_price"
    change: str
    text: str
    status: Status
    reason: str
    kept: Effect | None
    replanned: Effect | None


@dataclass(frozen=True, kw_only=True)
class RelaxedRule(Document):
    """The best without a rule of the runtime; an answer nobody can run."""

    proved: bool
    layout: Layout | None
    step_time_s: float
    lower_bound_s: float | None
    cost_fraction: float
    """What the rule costs at least, of a step without it."""
    most_cost_fraction: float | None
    """At most; null: not known."""


@dataclass(frozen=True, kw_only=True)
class RecomputeRule(Document):
    """What one way of recomputation for all stages costs."""

    same_split: RelaxedRule
    any_split: RelaxedRule | None


@dataclass(frozen=True, kw_only=True)
class Rival(Document):
    """A layout that may be faster after all."""

    KEYS = "rival"
    layout: WrittenLayout  # type: ignore[valid-type]
    step_time_s: float
    step_time_p90_s: float
    rank_by_p90: int
    probability_faster: float
    near_tie: bool


@dataclass(frozen=True, kw_only=True)
class Robustness(Document):
    """How sure the choice is."""

    near_ties: int
    rivals: tuple[Rival, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainDocument(OfJob, Priced):
    """What limits a plan, and what more would buy."""

    KEYS = "explain"
    schema: Literal["trainplan/explain/v1"]
    verdict: str
    resources: tuple[Share, ...]
    memory_limit: MemoryLimit
    largest_model: LargestModel | None
    imbalance: Imbalance | None
    lengths: SequenceLengths | None
    notes: tuple[str, ...]
    recompute_rule: RecomputeRule | None
    shadow_prices: tuple[ShadowPrice, ...]
    robustness: Robustness


@dataclass(frozen=True, kw_only=True)
class BrokenRule(Document):
    """A rule that refuses a layout."""

    rule: str
    says: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Overflow(Document):
    """A rank that has too many bytes."""

    pipeline_rank: int
    total_bytes: float
    over_bytes: float


@dataclass(frozen=True, kw_only=True)
class WhyNotDocument(OfJob):
    """Why a layout is not the answer."""

    KEYS = "why_not"
    schema: Literal["trainplan/why-not/v1"]
    verdict: Verdict
    text: str
    layout: Layout
    estimate: Estimate | None
    best: Priced
    broken_rules: tuple[BrokenRule, ...]
    usable_bytes: float
    fits_without_margin: bool
    overflows: tuple[Overflow, ...]
    lost_s: float | None
    terms: tuple[TermDifference, ...]
    probability_faster: float | None
    reasons: tuple[str, ...]
    listed_rank: int | None
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, kw_only=True)
class Side(OfJob, Priced):
    """One of two plans."""

    KEYS = "plan"


@dataclass(frozen=True, kw_only=True)
class CompareDocument(Document):
    """Two plans, term by term."""

    KEYS = "compare"
    schema: Literal["trainplan/compare/v1"]
    verdict: str
    throughput_ratio: float
    probability_second_faster: float | None
    job: tuple[FieldDifference, ...]
    layout: tuple[FieldDifference, ...]
    terms: tuple[TermDifference, ...]
    first: Side
    second: Side


@dataclass(frozen=True, kw_only=True)
class Placed(Document):
    """Where something stands in the launch."""

    file: str | None
    """Null: the command itself."""
    line: int | None


@dataclass(frozen=True, kw_only=True)
class ProblemEntry(Placed):
    """What is wrong, ignored or not read."""

    cause: str
    """A name that stays."""
    verdict: ProblemVerdict
    says: str


@dataclass(frozen=True, kw_only=True)
class FieldEntry(Placed):
    """A field of the job or the layout, and where it comes from."""

    name: str
    value: object
    origin: Origin
    written: str
    """In the runtime's own words."""


@dataclass(frozen=True, kw_only=True)
class Lint(Document):
    """One slip and what its edit saves."""

    name: str
    says: str
    saved_s: float | None
    freed_bytes: float | None
    fits: bool | None
    changes: tuple[FieldDifference, ...]
    settings: tuple[SettingChange, ...]


@dataclass(frozen=True, kw_only=True)
class Edit(Document):
    """Edits that pay."""

    units: tuple[str, ...]
    """What is changed together."""
    step_time_s: float
    saved_s: float | None
    """Null: the launch does not run without them."""
    peak_reserved_bytes: float
    changes: tuple[FieldDifference, ...]
    settings: tuple[SettingChange, ...]
    layout: Layout
    options: dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Optimum(Priced):
    """What a search finds for the job."""

    options: dict[str, object]
    optimal: bool
    gap_fraction: float


@dataclass(frozen=True, kw_only=True)
class CheckDocument(Document):
    """A launch that was read and judged."""

    KEYS = "check"
    schema: Literal["trainplan/check/v1"]
    text: str
    runtime: str
    runtime_version: str
    legal: bool
    problems: tuple[ProblemEntry, ...]
    job: OfJob | None
    layout: Layout | None
    fits: bool | None
    estimate: Estimate | None
    fields: tuple[FieldEntry, ...]
    lints: tuple[Lint, ...]
    edits: tuple[Edit, ...]
    optimum: Optimum | None
    untried: str | None
    provenance: Notes
