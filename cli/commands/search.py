"""`plan search`: the best layout of a job."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, get_args

import click

from trainplan.cli.options import (
    FORCE,
    JSON,
    PATH,
    REPORT,
    WORKERS,
    OneOf,
    completions,
    gathered,
    job_options,
    memory_margin,
    names,
    page,
    parameters,
    time_limit,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import InfeasibleDocument
    from trainplan.cli.files import errors_of
    from trainplan.cli.pages import NOT_TRIED, baseline_text, next_part, refusals, screen
    from trainplan.cli.processes import Processes
    from trainplan.cli.terminal import Clock, json_text, remark
    from trainplan.cli.values import Destination, Question, parse_choices, parse_layout, place_of
    from trainplan.costmodel.base import SpecError, did_you_mean
    from trainplan.costmodel.layout import Layout
    from trainplan.costmodel.outer import island_job
    from trainplan.costmodel.step import Estimate
    from trainplan.planner import questions
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import Offer, offers
    from trainplan.planner.documents import plan_json
    from trainplan.planner.goals import pareto as unbeaten_by_any
    from trainplan.planner.goals import pareto_json
    from trainplan.planner.plan import Infeasible, Name, Plan, SearchOptions
    from trainplan.planner.questions import estimate as estimate_of
    from trainplan.planner.settings import Level

NOTHING_FITS, INTERRUPTED = 2, 130
MORE = (
    "With --verbose: memory of every rank, settings, more measured runs, other schedules, refusals."
)
STOPPED = "stopped: the answer is the best so far, as under a time limit"
"""On stderr, after Ctrl-C."""


def stated_options(
    *,
    objective: Name,
    slack: float | None,
    deadline: float | None,
    fix: tuple[str, ...],
    exclude: tuple[str, ...],
    trusted: bool,
    trainer: str | None,
    memory_margin: float | None,
    fit_chance: float,
    fit_p99: bool,
    top: int,
    search_options: Level,
    all_nodes: bool,
) -> SearchOptions:
    """What the options of the search state.

    Raises:
        PlanError: A slack without its objective, or no field or value to hold or exclude.
    """
    place, fix = place_of(fix)
    held, excluded = parse_choices(fix, exclude)
    return SearchOptions(
        tower=place,
        objective=objective,
        slack=slack_of(objective, slack),
        deadline_days=deadline,
        trusted=trusted,
        trainer=trainer,
        memory_margin=memory_margin,
        fit_chance=fit_chance,
        fit_p99=fit_p99,
        top=top,
        search_options=search_options,
        whole_cluster=all_nodes,
        fix=held,
        exclude=excluded,
    )


@dataclass(frozen=True, slots=True)
class Baseline:
    """The user's own layout, priced."""

    layout: Layout
    estimate: Estimate


OBJECTIVE = click.option(
    "--objective",
    type=OneOf("objective", names.OBJECTIVES),
    default="time",
    help="What is best: fastest step, most free memory near it, least money or energy, fewest GPUs "
    "that fit and meet --deadline, or longest sequence.",
)
ALL_NODES = click.option(
    "--all-nodes",
    is_flag=True,
    help="Use all nodes; else all objectives but memory and context may leave some unused.",
)
SLACK = click.option(
    "--slack",
    callback=parameters.percentage,
    metavar="PERCENT",
    help="How much longer than the fastest a step may take: the simplest within it is the answer, "
    "or the one of least memory.  [default: 1%, memory 2%]",
)
DEADLINE = click.option(
    "--deadline",
    callback=parameters.day_count,
    metavar="DURATION",
    help="The run of --tokens must end by then: 30d, 36h, 2w.",
)
OUTPUT = click.option(
    "-o", "--output", type=PATH, help="Also write the plan here (`plan export` reads it)."
)
PARETO = click.option(
    "--pareto",
    shell_complete=completions.names(completions.FRONTS),
    metavar="A,B",
    help="Instead of one answer: all that no other beats in both of time,memory or cost,time.",
)
search_options = gathered(
    "options",
    "stated_options",
    (
        OBJECTIVE,
        SLACK,
        DEADLINE,
        ALL_NODES,
        click.option(
            "--fix",
            multiple=True,
            metavar="FIELD=VALUE",
            shell_complete=completions.pairs(completions.CHOICES),
            help="Hold a field: tp=8.",
        ),
        click.option(
            "--exclude",
            shell_complete=completions.pairs(completions.CHOICES),
            multiple=True,
            metavar="FIELD=VALUE",
            help="Keep a field from a value: recompute=full.",
        ),
        click.option(
            "--trusted",
            is_flag=True,
            help="Only layouts in distribution: within what published runs of such a runtime, GPU "
            "and model measured; prints what that costs.",
        ),
        click.option(
            "--trainer",
            type=OneOf("trainer", names.TRAINERS),
            help="Only what this project can be set to, on a runtime that it trains on; `plan "
            "export --trainer` writes its files.",
        ),
        click.option(
            "--search-options",
            type=OneOf("choice", names.LEVELS),
            default="safe",
            help="Settings that are searched: safe ones, which change no numerics; all, with "
            "stored precision; or none.",
        ),
        click.option(
            "--fit-chance",
            type=parameters.FloatRange(0, 1, min_open=True, max_open=True),
            default=names.FIT_CHANCE,
            help="Chance to fit that a layout needs, by the error of estimates of published peaks.",
        ),
        click.option(
            "--fit-p99",
            is_flag=True,
            help="It must fit in 99 of 100 steps, too, as load shifts (--option routing=FILE).",
        ),
        memory_margin(None),
        click.option(
            "--top", type=parameters.IntRange(1, 100), default=10, help="Alternatives to list."
        ),
    ),
)


@page(
    "search",
    "plan search --model llama3-70b --cluster 8x8:h100-sxm \\",
    "  --global-batch-size 128 --seq-length 8192 --output plan.json",
)
@job_options(length_required=False)
@search_options
@time_limit(30.0, "Answer with the incumbent of then, and state what is proved.")
@WORKERS
@click.option(
    "--baseline",
    metavar="LAYOUT",
    shell_complete=completions.LAYOUT,
    help="Your layout (see `plan estimate`), to compare.",
)
@PARETO
@click.option(
    "--verbose",
    is_flag=True,
    help="Also print memory of every rank, settings, more measured runs, other schedules, "
    "refusals.",
)
@gathered("destination", "trainplan.cli.values.stated:Destination", (OUTPUT, REPORT, FORCE, JSON))
def command(
    question: Question,
    options: SearchOptions,
    destination: Destination,
    *,
    time_limit: float,
    workers: int | None,
    baseline: str | None,
    pareto: str | None,
    verbose: bool,
) -> None:
    """Find the fastest layout that fits, with proof.

    Prints the layout, how sure it is, where its step time goes and the alternatives.
    """
    destination.check()
    if question.offers:
        _compare(question, options, destination, time_limit, workers)
        return
    if options.trainer:
        question = question.trained_by(options.trainer)
    elif options.tower != "apart":
        question = question.launchable()
    if pareto:
        _alone(options, destination, baseline)
        _choices(question, options, pair_of(pareto), destination, time_limit)
        return
    job, margin = question.job, options.margin(question.job)
    own = _priced(question, baseline, margin) if baseline and not job.outer else None
    with _stopping(time_limit) as clock, Processes(workers, stopped=clock.is_stopped) as processes:
        result = questions.search(job, options, clock, question.measured, processes)
    if isinstance(result, Infeasible):
        if destination.report:
            remark("no report is written: there is no layout to draw")
        _refuse(result, all_tried=not clock.spent(), as_json=destination.as_json)
    else:
        plan = _completed(result, clock.seconds, question.notes)
        if baseline and job.outer:
            own = _priced(_as_joined(question, plan), baseline, margin)
        _show(plan, own, destination, trainer=options.trainer, verbose=verbose)
        destination.write_report(plan_json(plan), question.measured)
    if clock.stopped:
        _end_as_stopped(STOPPED)


def _show(
    plan: Plan,
    own: Baseline | None,
    destination: Destination,
    *,
    trainer: str | None,
    verbose: bool,
) -> None:
    """Print the plan, then write it: an answer is not lost where it cannot be written."""
    document = plan_json(plan)
    alongside = own and baseline_text(plan.job, own.layout, own.estimate, plan.best.estimate)
    page = list(screen(plan, verbose=verbose))
    parts = [*page[:1], *([alongside] if alongside else []), *page[1:]]
    then = [next_part(_next(plan, destination, trainer)), *([] if verbose else [MORE])]
    answer(document, parts, as_json=destination.as_json, found=plan, then=then)
    if destination.as_json and alongside:
        remark(alongside)
    destination.write(json_text(document))


@contextmanager
def _stopping(time_limit: float) -> Iterator[Clock]:
    """A clock that control-C stops; then no answer is no complaint."""
    with Clock(time_limit, stops=True) as clock:
        try:
            yield clock
        except SpecError:
            if not clock.stopped:
                raise
            _end_as_stopped("stopped before any layout was found")


def _end_as_stopped(why: str) -> NoReturn:
    remark(why)
    click.get_current_context().exit(INTERRUPTED)


def _alone(options: SearchOptions, destination: Destination, baseline: str | None) -> None:
    given = {
        f"--objective {options.objective}": options.objective != "time",
        "--output": destination.output is not None,
        "--baseline": baseline is not None,
        "--fit-p99": options.fit_p99,
    }
    for name, clashes in given.items():
        if clashes:
            raise SpecError(f"--pareto lists many layouts and takes no {name}: leave one out")


def _choices(
    question: Question,
    options: SearchOptions,
    pair: tuple[Name, Name],
    destination: Destination,
    time_limit: float,
) -> None:
    job = island_job(question.job)
    if job.outer and job.outer.every is None:
        raise SpecError("--pareto compares rounds of one length: give --outer-every STEPS")
    with _stopping(time_limit) as clock:
        result = unbeaten_by_any(job, pair, options, clock, question.measured)
    document = pareto_json(result)
    answer(document, screen(result), as_json=destination.as_json, found=result)
    destination.write_report(document, question.measured)
    if clock.stopped:
        _end_as_stopped(STOPPED)
    if not result.points:
        click.get_current_context().exit(NOTHING_FITS)


def _compare(
    question: Question,
    options: SearchOptions,
    destination: Destination,
    time_limit: float,
    workers: int | None,
) -> None:
    """What the job costs on each offer, and the plan on the cheapest."""
    if options.objective != "cost":
        raise SpecError("--offers compares money: add --objective cost")
    by_name = {name: one.launchable() for name, one in question.offers}
    given = [Offer(name, Case(one.job, options, one.measured)) for name, one in by_name.items()]
    with _stopping(time_limit) as clock, Processes(workers, stopped=clock.is_stopped) as processes:
        found = offers(given, clock, processes)
    plan = found.plan and _completed(found.plan, clock.seconds, by_name[found.best.name].notes)
    parts = [*screen(found), *(screen(plan, verbose=False) if plan else ())]
    then = [next_part(_next(plan, destination, options.trainer))] if plan else []
    answer(found.document.json(), parts, as_json=destination.as_json, found=plan, then=then)
    if plan is None:
        click.get_current_context().exit(NOTHING_FITS)
    destination.write(json_text(plan_json(plan)))
    destination.write_report(plan_json(plan), found.best.case.measured)
    if clock.stopped:
        _end_as_stopped(STOPPED)


def _priced(question: Question, text: str, margin: float) -> Baseline:
    job, measured = question.job, question.measured
    with errors_of("--baseline"):
        layout = parse_layout(text, job.cluster)
        estimate = estimate_of(job, layout, measured, memory_margin=margin)
    return Baseline(layout, estimate)


def _as_joined(question: Question, plan: Plan) -> Question:
    """The question on one of its islands, all of them taken, with rounds of the plan."""
    island, own = island_job(question.job), plan.job.outer
    assert island.outer
    outer = {"outer": island.outer.model_copy(update={"every": own.every if own else None})}
    return replace(question, job=island.model_copy(update=outer))


def _completed(plan: Plan, seconds: float, notes: tuple[str, ...]) -> Plan:
    """The plan with what only the caller knows: the time it took and the user's versions."""
    certificate = plan.certificate.model_copy(update={"search_seconds": seconds})
    return plan.model_copy(update={"certificate": certificate, "notes": (*plan.notes, *notes)})


def _refuse(result: Infeasible, *, all_tried: bool, as_json: bool) -> None:
    page = screen(result, all_tried=all_tried)
    answer(InfeasibleDocument.of(result).json(), page, as_json=as_json, found=result)
    if as_json and not all_tried:
        remark(NOT_TRIED)
    click.get_current_context().exit(NOTHING_FITS)


def _next(plan: Plan, destination: Destination, trainer: str | None) -> str:
    """The export, or why the runtime cannot have it."""
    for note in refusals(plan.job, plan.notes):
        return note
    path = str(destination.output or "plan.json")
    way = f"--trainer {trainer}" if trainer else "--launcher torchrun"
    export = f"plan export {shlex.quote(path)} {way} --output-dir launch"
    return export if destination.output else f"add `--output plan.json`, then: {export}"


def slack_of(objective: str, slack: float | None) -> float | None:
    """The slack, where the objective has one.

    Raises:
        SpecError: It has none.
    """
    if slack is not None and objective == "energy":
        raise SpecError("--slack means nothing with --objective energy: it is of the step time")
    return slack


def pair_of(text: str) -> tuple[Name, Name]:
    """Read `cost,time`.

    Raises:
        SpecError: Not two different objectives.
    """
    names_of: tuple[Name, ...] = get_args(Name)
    known = {str(name): name for name in names_of if name != "context"}
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or names[0] == names[1] or not all(name in known for name in names):
        wrong = next((name for name in names if name not in known), "")
        intended = did_you_mean("objective", wrong, known) if wrong else ""
        raise SpecError(
            f"--pareto {text[:40]!r}: {intended} give two of {', '.join(known)}, such as cost,time"
        )
    return known[names[0]], known[names[1]]
