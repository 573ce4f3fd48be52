"""The first lines: the answer in numbers, the job, its tower, its run and the energy of that."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

from trainplan.cli.words import (
    DOT,
    gib,
    layout_line,
    parameters,
    percent,
    plural,
    seconds,
    seconds_like,
    small_percent,
    tokens,
)
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import GB, SECONDS_PER_DAY, SECONDS_PER_HOUR, long_unit
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import LOW_PRECISION, Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import mean_length
from trainplan.costmodel.model import num_active_parameters, num_parameters
from trainplan.costmodel.run_costs import (
    WORLD_KG_CO2_PER_KWH,
    Built,
    Goodput,
    goodput_of,
    hourly_price,
    lasting,
    paid_gpus,
    run_steps,
    stretch_of,
)
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import Estimate, Memory, NodeMemory
from trainplan.costmodel.towers import tower_params
from trainplan.planner.goals import PART_ALONE
from trainplan.planner.plan import Spent, changes_training
from trainplan.planner.questions import NO_FILES
from trainplan.planner.settings import Assumed, assumed_text

UPPER_BOUND = "an upper bound (one expert rank fullest in all layers)"
"""Of memory, where experts fill differently by step."""


class RunWords(NamedTuple):
    """Of a run of known length."""

    tokens: str
    length: str
    """With its unit, such as days."""
    interval: str
    gpu_hours: str
    spare: str
    """Of which nodes they are with those that train, behind a word; empty: of none."""
    money: str
    """Empty: a group of the cluster has no price."""


def run_words(job: Job, estimate: Estimate) -> RunWords | None:
    """Nothing where the job names no number of tokens."""
    steps = run_steps(job)
    if steps is None or job.training.tokens is None:
        return None
    passed = steps * stretch_of(job)
    total, interval = passed * estimate.step_time_s, estimate.uncertainty
    size, unit = long_unit(total)
    low, high = (
        _count(passed * bound / size)
        for bound in (interval.step_time_low_s, interval.step_time_high_s)
    )
    hours, hourly = total / SECONDS_PER_HOUR, hourly_price(job.cluster)
    gpu_hours, failures = hours * paid_gpus(job), job.cluster.failures
    spare = job.islands * failures.spare_nodes if failures else 0
    return RunWords(
        tokens=f"{tokens(job.training.tokens)} tokens",
        length=f"{_count(total / size)} {unit}",
        interval=f"{low} to {high}",
        gpu_hours=f"{gpu_hours:,.0f}" if gpu_hours >= 10 else f"{gpu_hours:.2g}",
        spare=f" with {plural(spare, 'spare node')}" if spare else "",
        money=""
        if hourly is None
        else f"{job.islands * hourly * hours:,.0f} {job.cluster.currency}",
    )


def run_lines(job: Job, estimate: Estimate) -> Iterator[str]:
    """The same in a line, and that it is without failures where none are stated."""
    if words := run_words(job, estimate):
        yield DOT.join(
            (
                f"{words.tokens} in {words.length} ({words.interval})",
                f"{words.gpu_hours} GPU-hours{words.spare}",
                words.money or "no price_per_gpu_hour given",
            )
        )
        if job.cluster.failures is None:
            yield "without failures and saves: --mtbf-node adds them"


def goodput_lines(job: Job) -> Iterator[str]:
    """Where failures are stated, what trains of the time, how often to save, what one costs."""
    if goodput := goodput_of(job):
        yield goodput_line(goodput)


def goodput_line(goodput: Goodput) -> str:
    """The same of a goodput."""
    between, away = SECONDS_PER_DAY / goodput.failures_per_day, goodput.waiting_fraction
    size, stop = f"{goodput.checkpoint_bytes / GB:,.0f} GB", lasting(goodput.stall_s)
    parts = (
        f"goodput {_below_one(goodput.fraction)}",
        f"a save every {lasting(goodput.save_interval_s)}, {size}, stops training for {stop}",
        f"a failure every {lasting(between)} costs {lasting(goodput.lost_s_per_failure)}",
        *([f"{small_percent(away)} of the time nodes are lacking"] if away else []),
    )
    return DOT.join(parts)


def _below_one(fraction: float) -> str:
    """A share in percent, with as many digits as it takes to be less than all; four at most."""
    digits = next((n for n in range(1, 4) if round(fraction, n + 2) < 1), 4)
    return percent(fraction, digits)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


TRAINED = {"none": "trained", "encoder": "encoder frozen", "all": "frozen"}


def tower_lines(model: ModelSpec) -> tuple[str, ...]:
    """The vision or audio tower, its input, and what of it is trained; nothing without a tower."""
    tower = model.tower
    if model.left_out:
        return (f"without its {model.left_out}, which is not priced: the language model alone",)
    if tower is None:
        return ()
    given = (
        f"{plural(tower.samples_per_sequence, 'sample')} a sequence, each of "
        f"{tower.patches_per_sample:,} patches and {plural(tower.tokens_per_sample, 'token')}"
    )
    size = f"with {tower.called} of {parameters(tower_params(tower))} parameters"
    return (DOT.join((size, given, TRAINED[tower.frozen])),)


def fabric_lines(cluster: ClusterSpec, spent: Spent | None) -> Iterator[str]:
    """Where switches are stated, how many the network takes in both shapes, its own first."""
    if spent is None or (found := spent.fabric) is None:
        return
    shapes = {"any-to-any": found.any_to_any, "rail-only": found.rail_only}
    own, *others = sorted(shapes, key=lambda name: name != cluster.network)
    words = [f"{n} {_built(b, cluster)}" for n in (own, *others) if (b := shapes[n])]
    yield f"network at full bandwidth: {'; '.join(words)}"


def _built(network: Built, cluster: ClusterSpec) -> str:
    switches = f"{network.switches:,} switch{'es' * (network.switches > 1)}"
    counts = f"{switches} in {network.tiers} tier{'s' * (network.tiers > 1)}"
    price = "" if network.price is None else f", {network.price:,.0f} {cluster.currency}"
    return f"{counts}, {network.transceivers:,} transceivers{price}"


def spent_lines(job: Job, spent: Spent | None) -> Iterator[str]:
    """A line where the run, a PUE or the carbon dioxide of a kWh is stated, one of the network."""
    cluster = job.cluster
    yield from fabric_lines(cluster, spent)
    has_totals = job.training.tokens or cluster.pue or cluster.kg_co2_per_kwh is not None
    if spent is None or not has_totals:
        return
    if spent.kwh_per_step is None:
        if cluster.pue or cluster.kg_co2_per_kwh is not None:
            yield "energy not known: no power limit is known of these GPUs, or they differ"
        return
    of = "GPUs alone" if cluster.pue is None else f"GPUs with PUE {cluster.pue:g}"
    parts = [f"energy {_both(spent.kwh_per_run, spent.kwh_per_step, _energy)} ({of})"]
    if spent.kg_co2_per_step is not None:
        world = cluster.kg_co2_per_kwh == WORLD_KG_CO2_PER_KWH
        at = f"at {cluster.kg_co2_per_kwh:g} kg a kWh{' (IEA, world 2024)' * world}"
        parts.append(f"CO2 {_both(spent.kg_co2_per_run, spent.kg_co2_per_step, _mass)}, {at}")
    yield DOT.join(parts)


def _both(run: float | None, step: float, shown: Callable[[float], str]) -> str:
    """Of the run, where its length is known, and of a step."""
    of_step = f"{shown(step)} a step"
    return of_step if run is None else f"{shown(run)}, {of_step}"


def _energy(kwh: float) -> str:
    return _scaled(kwh, ((1e6, "GWh"), (1e3, "MWh"), (1.0, "kWh"), (1e-3, "Wh")))


def _mass(kg: float) -> str:
    return _scaled(kg, ((1e6, "kt"), (1e3, "t"), (1.0, "kg"), (1e-3, "g")))


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """In the largest unit of which there is one, else in the last."""
    size, unit = next((one for one in units if value >= one[0]), units[-1])
    number = value / size
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


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

    Before all that, what the runtime `cannot` run or export.
    """
    text = Text(style="bold green")
    for line in cannot:
        text.append(f"{line}\n", style="bold red")
    text.append("\n".join((*before, layout_line(layout, job.model))))
    for line in after:
        text.append("\n" + line, style="bold default")
    text.append("\n" + estimate_line(estimate, job), style="not bold default")
    if estimate.memory.is_doubtful:
        style = "bold yellow" if estimate.memory.fits is None else "bold red"
        text.append("\n" + fit_line(estimate.memory, job.model), style=style)
    for line in (*run_lines(job, estimate), *goodput_lines(job), *spent_lines(job, spent)):
        text.append("\n" + line, style="not bold default")
    return text


def refusals(job: Job, notes: Iterable[str]) -> tuple[str, ...]:
    """Those of the notes that a plan does not start, or has no launch files, and why."""
    begins, parts = (f"{job.runtime} cannot express", NO_FILES), " will not start here: "
    return tuple(note for note in notes if note.startswith(begins) or parts in note)


def chosen_lines(job: Job, notes: Iterable[str]) -> tuple[str, ...]:
    """Notes next to the answer: the runtime that was chosen and why, a faster part.

    And what is not known to be faster, or is by the rows that it is made by.
    """
    begins = (f"runtime {job.runtime}", "not known whether", "experts are placed by the same rows")
    return tuple(note for note in notes if note.startswith(begins) or PART_ALONE in note)


def estimate_line(estimate: Estimate, job: Job) -> str:
    """Step time with its interval, speed, memory."""
    training = job.training
    peak = f" of the {training.precision} peak" if training.precision in LOW_PRECISION else ""
    interval, memory, step = estimate.uncertainty, estimate.memory, estimate.step_time_s
    used = f"{gib(memory.peak_reserved_bytes)} of {gib(memory.capacity_bytes)} GiB"
    low = seconds_like(interval.step_time_low_s, step)
    high = seconds_like(interval.step_time_high_s, step)
    return DOT.join(
        (
            f"{seconds(step)} a step ({percent(interval.level, 0)}: {low.split()[0]} to {high})",
            f"{estimate.tokens_per_s_per_gpu:,.0f} tokens/s/GPU",
            f"MFU {percent(estimate.mfu)}{peak}",
            used + without(job.model),
            *_node_words(memory.host),
        )
    )


def _node_words(node: NodeMemory) -> Iterator[str]:
    """What a node keeps off its GPUs, where it keeps anything."""
    if node.host_bytes:
        known = node.host_capacity_bytes
        limit = f" of {gib(known)}" if known else ""
        yield f"host at least {gib(node.host_bytes)}{limit} GiB a node"
    if node.drive_bytes:
        yield f"drives {gib(node.drive_bytes)} of {gib(node.drive_capacity_bytes or 0)} GiB a node"


def without(model: ModelSpec) -> str:
    """What of a model an answer is without, behind a word; empty: nothing."""
    return f" without its {model.left_out}" if model.left_out else ""


def chance_words(memory: Memory) -> str:
    """The chance to fit, as of 100 runs; empty where it is not known."""
    chance = memory.fit_chance
    return "" if chance is None else f"{min(max(round(100 * chance), 1), 99)} of 100"


def chance_text(memory: Memory) -> str:
    """The same in brackets."""
    chance = chance_words(memory)
    return f" ({chance})" if chance else ""


def tightest_text(memory: Memory) -> str:
    """Where memory is fullest."""
    when = "loss" if memory.peak_in_loss else "backward pass"
    return f"tightest in the {when} of pipeline rank {memory.fullest.rank}"


def fit_line(memory: Memory, model: ModelSpec) -> str:
    """Does it fit, with what chance, and by how much? Not known where a part is not priced."""
    if not memory.host.host_fits:
        return (
            f"Does not fit (host_memory): a node needs at least {gib(memory.host.host_bytes)} GiB "
            f"of host memory and has {gib(memory.host.host_capacity_bytes or 0)}."
        )
    if not memory.host.drive_fits:
        return (
            f"Does not fit (drive_space): a node needs {gib(memory.host.drive_bytes)} GiB on its "
            f"drives and has {gib(memory.host.drive_capacity_bytes or 0)}."
        )
    free, chance, where = memory.headroom_bytes, chance_text(memory), tightest_text(memory)
    if memory.fits and free < 0:
        return f"Fits in 99 of 100 steps; by {UPPER_BOUND}, {gib(-free)} GiB too much."
    if memory.fits:
        verdict = "At the edge, fits" if memory.is_doubtful else "Fits"
        left = f"{without(model)}, which is not priced" if model.left_out else ""
        return f"{verdict}{left}{chance}, with {gib(free)} GiB to spare; {where}."
    lacks = f"{gib(-free)} GiB too much; {where}."
    if free >= 0:
        lacks = f"only {gib(free)} GiB stay free, less than the margin."
    if memory.fits is None:
        return f"Not known whether it fits: by {UPPER_BOUND}, {lacks}"
    return f"Does not fit{chance}: {lacks}"


def job_line(job: Job, assumed: Sequence[Assumed] = ()) -> str:
    """The question, with the settings that an answer assumes in place of the options."""
    model, cluster, training = job.model, job.cluster, job.training
    size = f"{parameters(num_parameters(model))} parameters"
    if model.moe:
        size += f" ({parameters(num_active_parameters(model))} active)"
    gpus = " + ".join(f"{group.num_gpus} x {group.gpu}" for group in cluster.groups)
    each = f"{job.islands} islands of " if job.islands > 1 else ""
    what = DOT.join((f"{model.name}, {size}", each + gpus))
    batch = f"batch {training.global_batch_size:,} x {plural(training.seq_length, 'token')}"
    batch += f" on each of {job.islands} islands" if each else ""
    if training.lengths:
        filled = "padded" if training.packing == "none" else f"packed {training.packing}"
        batch += f", sequences of {mean_length(training):,.0f} in the mean, {filled}"
    known = {one.option for one in assumed}
    stated = " ".join(text for text in job.options.arguments().values() if text not in known)
    settings = (assumed_text(assumed),) if assumed else ()
    with_options = (job.runtime, stated) if stated else (job.runtime,)
    reserve = tuple(
        f"{gib(size)} GiB of every {of} reserved"
        for size, of in ((job.reserve_bytes, "GPU"), (job.reserve_host_bytes, "host"))
        if size
    )
    trained = (model.trained.text,) if model.trained else ()
    parts = (batch, training.precision, *trained, *_states(job), *with_options, *reserve, *settings)
    line = DOT.join(parts)
    changed = (f"changes the training: {change.says}" for change in changes_training(job))
    states = traits_of(job).states_text(job)
    return "\n".join((what, *tower_lines(model), line, states, *changed))


def _states(job: Job) -> Iterator[str]:
    """The optimizer and how states are stored, where they are not the usual ones."""
    usual, training = type(job.training).model_fields, job.training
    if training.optimizer != usual["optimizer"].default:
        yield training.optimizer.text
    if training.state_precision != usual["state_precision"].default:
        yield f"states {training.state_precision}"
