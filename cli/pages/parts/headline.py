"""The first lines: the answer in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from trainplan.cli.pages.parts.run import run_lines
from trainplan.cli.pages.parts.spent import spent_lines
from trainplan.cli.pages.parts.tower import tower_lines
from trainplan.cli.words import (
    DOT,
    gib,
    layout_line,
    parameters,
    percent,
    plural,
    seconds,
    seconds_like,
)
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import mean_length
from trainplan.costmodel.model import num_active_parameters, num_parameters
from trainplan.costmodel.step import Estimate, Memory, NodeMemory
from trainplan.planner.plan import Spent, changes_training


def headline(
    job: Job,
    layout: Layout,
    estimate: Estimate,
    *after: str,
    before: Sequence[str] = (),
    spent: Spent | None = None,
    cannot: Sequence[str] = (),
) -> Text:
    """Layout, `before` and `after` it what answers, speed, memory, with `tokens` the whole run.

    At last what the runtime `cannot` run.
    """
    text = Text("\n".join((*before, layout_line(layout, job.model))), style="bold green")
    for line in after:
        text.append("\n" + line, style="bold default")
    text.append("\n" + estimate_line(estimate), style="not bold default")
    if not estimate.memory.fits:
        text.append("\n" + fit_line(estimate.memory), style="bold red")
    for line in (*run_lines(job, estimate), *spent_lines(job, spent)):
        text.append("\n" + line, style="not bold default")
    for line in cannot:
        text.append("\n" + line, style="bold red")
    return text


def refusals(job: Job, notes: Iterable[str]) -> tuple[str, ...]:
    """Those of the notes that say that the runtime cannot run this model, whatever the layout."""
    return tuple(note for note in notes if note.startswith(f"{job.runtime} cannot express"))


def estimate_line(estimate: Estimate) -> str:
    """Step time with its interval, speed, memory."""
    interval, memory, step = estimate.uncertainty, estimate.memory, estimate.step_time_s
    low = seconds_like(interval.step_time_low_s, step)
    high = seconds_like(interval.step_time_high_s, step)
    return DOT.join(
        (
            f"{seconds(step)} a step ({percent(interval.level, 0)}: {low.split()[0]} to {high})",
            f"{estimate.tokens_per_s_per_gpu:,.0f} tokens/s/GPU",
            f"MFU {percent(estimate.mfu)}",
            f"{gib(memory.peak_reserved_bytes)} of {gib(memory.capacity_bytes)} GiB",
            *_node_words(memory.host),
        )
    )


def _node_words(node: NodeMemory) -> Iterator[str]:
    """What a node keeps off its GPUs, where it keeps anything."""
    if node.host_bytes:
        known = node.host_capacity_bytes
        limit = f" of {gib(known)}" if known else ""
        yield f"host {gib(node.host_bytes)}{limit} GiB a node"
    if node.drive_bytes:
        yield f"drives {gib(node.drive_bytes)} of {gib(node.drive_capacity_bytes or 0)} GiB a node"


def fit_line(memory: Memory) -> str:
    """Does it fit, and by how much?"""
    if memory.fits:
        return f"Fits, with {gib(memory.headroom_bytes)} GiB to spare on the fullest rank."
    if not memory.host.host_fits:
        return (
            f"Does not fit (host_memory): a node needs {gib(memory.host.host_bytes)} GiB of host "
            f"memory and has {gib(memory.host.host_capacity_bytes or 0)}."
        )
    if not memory.host.drive_fits:
        return (
            f"Does not fit (drive_space): a node needs {gib(memory.host.drive_bytes)} GiB on its "
            f"drives and has {gib(memory.host.drive_capacity_bytes or 0)}."
        )
    if memory.headroom_bytes >= 0:
        return (
            f"Does not fit: only {gib(memory.headroom_bytes)} GiB stay free, less than the margin."
        )
    return f"Does not fit: {gib(-memory.headroom_bytes)} GiB too much on the fullest rank."


def job_line(job: Job) -> str:
    """What was asked."""
    model, cluster, training = job.model, job.cluster, job.training
    size = f"{parameters(num_parameters(model))} parameters"
    if model.moe:
        size += f" ({parameters(num_active_parameters(model))} active)"
    gpus = " + ".join(f"{group.num_gpus} x {group.gpu}" for group in cluster.groups)
    what = DOT.join((f"{model.name}, {size}", gpus))
    batch = f"batch {training.global_batch_size:,} x {plural(training.seq_length, 'token')}"
    if training.lengths:
        filled = "padded" if training.packing == "none" else f"packed {training.packing}"
        batch += f", sequences of {mean_length(training):,.0f} in the mean, {filled}"
    stated = " ".join(job.options.arguments().values())
    with_options = (job.runtime, stated) if stated else (job.runtime,)
    reserve = tuple(
        f"{gib(size)} GiB of every {of} reserved"
        for size, of in ((job.reserve_bytes, "GPU"), (job.reserve_host_bytes, "host"))
        if size
    )
    trained = (model.trained.text,) if model.trained else ()
    parts = (batch, training.precision, *trained, *_states(job), *with_options, *reserve)
    line = DOT.join(parts)
    changed = (f"changes the training: {change.says}" for change in changes_training(job))
    return "\n".join((what, *tower_lines(model), line, *changed))


def _states(job: Job) -> Iterator[str]:
    """The optimizer and how states are stored, where they are not the usual ones."""
    usual, training = type(job.training).model_fields, job.training
    if training.optimizer != usual["optimizer"].default:
        yield training.optimizer.text
    if training.state_precision != usual["state_precision"].default:
        yield f"states {training.state_precision}"
