"""Estimates of given layouts: one, or many at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import overload

import numpy as np

from trainplan.costmodel.base import Identical, SpecError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import COLUMNS, FIELDS, LayoutTable, Rule, num_microbatches
from trainplan.costmodel.routing import check_routing
from trainplan.costmodel.runtimes import attention_on, option_without_price, runtime
from trainplan.costmodel.step import Estimate, Simulated, simulated
from trainplan.planner.space import rules_of_job

AT_ONCE = 4096
"""Layouts priced together. Source: measured; more are not faster, and take more memory."""
KNOWN = 16
"""Jobs whose machine and rules are kept for the next layout."""
ANSWERS = 512
"""Estimates kept for the next call."""


@dataclass(frozen=True, slots=True)
class Estimates(Sequence[Estimate]):
    """Estimates of many layouts: columns at once, each whole `Estimate` when it is needed."""

    step_time_s: FloatColumn
    peak_reserved_bytes: FloatColumn
    """Device memory of the fullest rank; as `Memory.peak_reserved_bytes`."""
    fits: BoolColumn
    parts: tuple[Simulated, ...]
    place: IntColumn
    """Where in all parts, end to end, each layout lies."""

    def __len__(self) -> int:
        return len(self.step_time_s)

    @overload
    def __getitem__(self, index: int) -> Estimate: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Estimate]: ...

    def __getitem__(self, index: int | slice) -> Estimate | Sequence[Estimate]:
        """One estimate with all its terms, or several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        part, row = divmod(int(self.place[index]), len(self.parts[0].fits))
        return self.parts[part].row(row)

    def __iter__(self) -> Iterator[Estimate]:
        return (self[i] for i in range(len(self)))


def estimate(
    job: Job, layout: Layout, measured: Measured = NOTHING, *, memory_margin: float = 0.0
) -> Estimate:
    """Price one layout.

    Raises:
        SpecError: The layout breaks a rule; the message names the rule and its fix.
    """
    return _answer(Identical(job), Identical(measured), memory_margin, layout)


@lru_cache(maxsize=ANSWERS)
def _answer(
    job: Identical[Job], measured: Identical[Measured], margin: float, layout: Layout
) -> Estimate:
    table = LayoutTable.of([layout])
    _check(job.of, table)
    return simulated(_context(job, measured).with_table(table), margin).row(0)


def estimates(
    job: Job,
    layouts: Iterable[Layout] | LayoutTable,
    measured: Measured = NOTHING,
    *,
    memory_margin: float = 0.0,
) -> Estimates:
    """Price many layouts of a job at once, each as `estimate` would: with its schedule simulated.

    Raises:
        SpecError: A layout breaks a rule; the message names the first such layout.
    """
    table = layouts if isinstance(layouts, LayoutTable) else LayoutTable.of(layouts)
    _check(job, table)
    context = _context(Identical(job), Identical(measured))
    keys = (num_microbatches(job, table), table.vpp, table.pp, table.schedule)
    order = np.lexsort(keys)  # what has one pipeline is simulated together
    parts = tuple(
        simulated(context.with_table(one), memory_margin)
        for one in table.take(order).batches(AT_ONCE)
    )
    step, used, fits = np.zeros((3, len(table)))
    if parts:
        step[order] = np.concatenate([part.step_time_s for part in parts])
        used[order] = np.concatenate([part.peak_reserved_bytes for part in parts])
        fits[order] = np.concatenate([part.fits for part in parts])
    return Estimates(step, used, fits.astype(bool), parts=parts, place=np.argsort(order))


def check(job: Job, layout: Layout) -> None:
    """Is the layout legal for the job?

    Raises:
        SpecError: It needs another number of GPUs or breaks a rule.
    """
    _check(job, LayoutTable.of([layout]))


@lru_cache(maxsize=KNOWN)
def _context(job: Identical[Job], measured: Identical[Measured]) -> Context:
    """Machine and traits of a job: the same for all its layouts."""
    return context_for(job.of, measured.of)


@lru_cache(maxsize=KNOWN)
def _checked_rules(job: Identical[Job]) -> tuple[Rule, ...]:
    """The rules of a job whose model no layout needs to help."""
    check_model(job.of)
    return rules_of_job(job.of)


def _check(job: Job, table: LayoutTable) -> None:
    """Is every layout legal?

    Raises:
        SpecError: The first that is not, and why.
    """
    world = table.tp * table.cp * table.pp * table.dp
    wrong = world != job.cluster.num_gpus
    if wrong.any():
        raise _other_world(job, table, int(np.argmax(wrong)))
    key = Identical(job)
    if len(table) == 1:
        values = tuple(column.item() for column in COLUMNS(table))
        if not any(one.broken(job, table, values) for one in _verdicts(key)):
            return
    rules = _checked_rules(key)
    broken = [rule.broken(job, table) for rule in rules]
    illegal = np.any(broken, axis=0)
    if illegal.any():
        row = int(np.argmax(illegal))
        rule = next(one for one, rows in zip(rules, broken, strict=True) if rows[row])
        which = _which(table, row)
        raise SpecError(
            f"layout{which} breaks rule {rule.name}: {rule.says} (source: {rule.source})"
        )


MOST_VERDICTS = 4096
"""Verdicts kept of rules of the same columns."""


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """Rules of the same columns, and which values of these break one."""

    values: Callable[[tuple[object, ...]], object]
    """Of those columns, of all of a row."""
    rules: tuple[Rule, ...]
    known: dict[object, bool]

    def broken(self, job: Job, table: LayoutTable, row: tuple[object, ...]) -> bool:
        """Does a table of one row break a rule? `row` has the values of all its columns."""
        values = self.values(row)
        known = self.known.get(values)
        if known is None:
            if len(self.known) >= MOST_VERDICTS:
                self.known.clear()
            known = any(bool(rule.broken(job, table)[0]) for rule in self.rules)
            self.known[values] = known
        return known


@lru_cache(maxsize=KNOWN)
def _verdicts(job: Identical[Job]) -> tuple[_Verdicts, ...]:
    """All rules of a job."""
    found: dict[tuple[str, ...], list[Rule]] = {}
    for rule in _checked_rules(job):
        found.setdefault(tuple(sorted(rule.columns)), []).append(rule)
    place = {name: number for number, name in enumerate(FIELDS)}
    return tuple(
        _Verdicts(itemgetter(*map(place.__getitem__, columns)), tuple(rules), {})
        for columns, rules in found.items()
    )


def _other_world(job: Job, table: LayoutTable, row: int) -> SpecError:
    layout, world = table.row(row), job.cluster.num_gpus
    return SpecError(
        f"layout{_which(table, row)} needs tp * cp * pp * dp = {layout.world_size} GPUs, the "
        f"cluster has {world}: set dp = {world // (layout.tp * layout.cp * layout.pp)} or change "
        "the others"
    )


def _which(table: LayoutTable, row: int) -> str:
    """Names a layout among several."""
    return f" {row}" if len(table) > 1 else ""


def check_model(job: Job) -> None:
    """What of a model no layout helps: a learned position table that ends, a GPU without a kernel.

    Source of offload: Megatron-LM, megatron/core/transformer/transformer_config.py:1884.
    """
    longest, sequence = job.model.max_position_embeddings, job.training.seq_length
    if job.model.position_embedding == "learned" and sequence > longest:
        raise SpecError(
            f"seq_length = {sequence} exceeds the {longest} learned positions of "
            f"{job.model.name}: lower it, or raise max_position_embeddings in the model file"
        )
    check_routing(job)
    tower = job.model.tower
    if tower and tower.tokens_per_sequence > sequence:
        raise SpecError(
            f"{tower.samples_per_sequence} samples of {tower.tokens_per_sample} tokens do not fit "
            f"into seq_length = {sequence}: raise it, or lower samples or patches (--tower)"
        )
    layers, offloaded = job.model.num_hidden_layers, job.options.offload_activation_layers or 0
    if offloaded >= layers:
        raise SpecError(
            f"offload_activation_layers = {offloaded} leaves none of the {layers} layers of "
            f"{job.model.name} on the GPU: give {layers - 1} or fewer"
        )
    stated = job.options.attention
    if stated == "flash" and attention_on(job, "flash") == "unfused":
        gpus = " and ".join(dict.fromkeys(group.gpu for group in job.cluster.groups))
        raise SpecError(f"attention=flash: no fused core runs on {gpus}: leave the option out")
    own = runtime(job.runtime).kernels.attention
    if stated not in (None, "flash", "unfused", own, "flash2" if own == "triton" else own):
        raise SpecError(
            f"attention={stated}: {job.runtime} has no such kernel: use attention=flash"
        )
    if reason := option_without_price(job, runtime(job.runtime)):
        raise SpecError(reason)
