"""The table of alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.table import Table

from trainplan.cli.render.parts.grid import Column, grid
from trainplan.cli.render.parts.text import (
    SHORT_MODULES,
    SHORT_OFFLOADED,
    gib,
    offloaded_text,
    percent,
    recompute_text,
    seconds_like,
    usual_schedule,
)
from trainplan.costmodel.machine.uncertainty import near_tie_fraction
from trainplan.costmodel.spec.layout import Layout
from trainplan.planner.plan.plan import Candidate, Plan


@dataclass(frozen=True, slots=True)
class _Field:
    """One column: its head, its text, and when it is worth a column."""

    head: str
    text: Callable[[Layout], str]
    needed: Callable[[Plan], bool]


def _always(plan: Plan) -> bool:
    return True


def _experts(plan: Plan) -> bool:
    return plan.job.model.moe is not None


def _any(claim: Callable[[Layout], bool]) -> Callable[[Plan], bool]:
    return lambda plan: any(claim(candidate.layout) for candidate in plan.candidates)


_FIELDS = (
    _Field("tp", lambda layout: f"{layout.tp}", _always),
    _Field("pp", lambda layout: f"{layout.pp}", _always),
    _Field("vpp", lambda layout: f"{layout.vpp}", _always),
    _Field("cp", lambda layout: f"{layout.cp}", _always),
    _Field("dp", lambda layout: f"{layout.dp}", _always),
    _Field("ep", lambda layout: f"{layout.ep}", _experts),
    _Field("etp", lambda layout: f"{layout.etp}", _experts),
    _Field(
        "schedule",
        lambda layout: layout.schedule,
        _any(lambda layout: layout.schedule != usual_schedule(layout)),
    ),
    _Field("mbs", lambda layout: f"{layout.micro_batch_size}", _always),
    _Field(
        "sp",
        lambda layout: "yes" if layout.sequence_parallel else "no",
        _any(lambda layout: layout.tp > 1 and not layout.sequence_parallel),
    ),
    _Field("zero", lambda layout: f"{layout.zero_stage}", _always),
    _Field(
        "rep",
        lambda layout: f"{layout.dp_replicate}",
        _any(lambda layout: layout.dp_replicate > 1),
    ),
    _Field(
        "offload",
        lambda layout: percent(layout.offload.optimizer, 0),
        _any(lambda layout: layout.offload.optimizer > 0),
    ),
)


def alternatives_table(plan: Plan) -> Table:
    """The best layout of each family, fastest first; `~` marks near-ties."""
    chosen = [field for field in _FIELDS if field.needed(plan)]
    away = any(candidate.layout.offload_modules for candidate in plan.candidates)
    columns = (
        Column("#"),
        *(Column(field.head) for field in chosen),
        *((Column("on host", numeric=False),) if away else ()),
        Column("recompute", numeric=False),
        Column("step"),
        Column("slower"),
        Column("MFU"),
        Column("GiB"),
        Column("", numeric=False),
    )
    return grid(
        columns,
        (
            (
                f"{candidate.rank}",
                *(field.text(candidate.layout) for field in chosen),
                *((_folded(offloaded_text(candidate.layout)),) if away else ()),
                _folded(recompute_text(candidate.layout)),
                *_numbers(plan, candidate),
            )
            for candidate in plan.candidates
        ),
    )


def _folded(text: str) -> str:
    """A list of modules on lines of three: it reads better than one cut anywhere."""
    words = text.split("+")
    lines = ["+".join(words[i : i + 3]) for i in range(0, len(words), 3)]
    return "+\n".join(lines)


def legend(plan: Plan) -> Iterator[str]:
    """What the marks and short names of the table mean; nothing where none is used."""
    if any(candidate.near_tie for candidate in plan.candidates):
        close = percent(near_tie_fraction())
        yield f"~ within {close}, less than the model can tell apart: ordered by free memory"
    used = {m for candidate in plan.candidates for m in candidate.layout.recompute_modules}
    names = [f"{short} = {m}" for m, short in SHORT_MODULES.items() if m in used and m != short]
    if names:
        yield "recompute: " + ", ".join(names)
    away = {m for candidate in plan.candidates for m in candidate.layout.offload_modules}
    if away:
        names = [f"{short} = {m}" for m, short in SHORT_OFFLOADED.items() if m in away]
        yield "on host: " + ", ".join(names)


def _numbers(plan: Plan, candidate: Candidate) -> tuple[str, ...]:
    estimate, best = candidate.estimate, plan.best.estimate.step_time_s
    return (
        seconds_like(estimate.step_time_s, best),
        percent(estimate.step_time_s / best - 1),
        percent(estimate.mfu),
        gib(estimate.memory.peak_reserved_bytes),
        "~" if candidate.near_tie else "",
    )
