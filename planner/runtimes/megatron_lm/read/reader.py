"""One launch as a question and an answer of ours."""

from collections.abc import Iterator
from functools import partial

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.hardware import ClusterSpec, parse_cluster
from trainplan.costmodel.job import LOW_PRECISION, Job, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.absence import Absence
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments, shown
from trainplan.planner.runtimes.megatron_lm.read.cluster import Place, lacks_format, place_of
from trainplan.planner.runtimes.megatron_lm.read.cores import core_of
from trainplan.planner.runtimes.megatron_lm.read.degrees import DEGREE_CHECKS
from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts
from trainplan.planner.runtimes.megatron_lm.read.fields import READ, fields, length_key
from trainplan.planner.runtimes.megatron_lm.read.layout import inner_ranks, read_layout
from trainplan.planner.runtimes.megatron_lm.read.model import num_layers, read_model
from trainplan.planner.runtimes.megatron_lm.read.network import MODEL_CHECKS
from trainplan.planner.runtimes.megatron_lm.read.options import (
    precision,
    read_optimizer,
    read_options,
    with_exchange,
)
from trainplan.planner.runtimes.megatron_lm.read.parser import parse
from trainplan.planner.runtimes.megatron_lm.read.pipeline import virtual_stages
from trainplan.planner.runtimes.megatron_lm.read.run import RUN_CHECKS
from trainplan.planner.runtimes.megatron_lm.read.validator import (
    FIRST,
    LAST,
    OF_SHAPE,
    SHAPE,
    SHARDING,
)
from trainplan.planner.runtimes.megatron_lm.read.vocabulary import ASSUMED, like, named, vocabulary
from trainplan.planner.runtimes.megatron_lm.read.without_price import unpriced
from trainplan.planner.runtimes.megatron_lm.write import COMMIT, MEGATRON_LM, written_model
from trainplan.planner.runtimes.ranks import USUAL_NODE, is_counted
from trainplan.planner.runtimes.reading import NOT_STATED, OF_RECIPE, Field, Reading, Request
from trainplan.planner.shell import Launch, Problem, Verdict, Word, way_to_state
from trainplan.planner.space import broken_rules, rules_of_job

CHECKS = (*FIRST, *DEGREE_CHECKS, *SHARDING, *SHAPE, *LAST, *MODEL_CHECKS, *RUN_CHECKS)
"""All that the runtime stops at, in its order."""
OTHER_FILES = {
    "yaml_cfg": "its arguments are in a file of another form",
    "use_checkpoint_args": "its model is in a checkpoint",
}
VERDICTS: dict[str, Verdict] = {
    "stages_hold_layers": "unmodelled",
    "stages_hold_the_model": "unmodelled",
    "recompute_within_stage": "unmodelled",
    "offloads_without_fsdp": "unmodelled",
    "offloads_without_graphs": "unmodelled",
    "offloads_what_is_kept": "unmodelled",
    "offloaded_moments_are_whole": "ignored",
    "graphed_routers_keep_their_norm": "ignored",
    "fsdp_overlaps_always": "ignored",
    "replicas_need_sharding": "ignored",
    "etp_needs_experts": "ignored",
    "interleaved_needs_whole_groups": "unmodelled",
    "stated_groups_run": "unmodelled",
    "gtp_trains_all_weights": "unmodelled",
    "gtp_updates_each_weight": "unmodelled",
}
"""Rules of the cost model that stop no launch; where the runtime stops, a check says so."""
STATED_ELSEWHERE = frozenset({"dp_divides_batch", "interleaved_shape", "ep_needs_experts"})
"""Rules whose case a check of the runtime names."""


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout of a launch, and what is wrong with it."""
    core = core_of(request.release)
    arguments, unparsed = parse(launch.arguments, strict=request.strict, core=core)
    shape = () if num_layers(arguments) or not request.model else _shape(request.model)
    if shape:
        words = (*shape, *launch.arguments)
        arguments, unparsed = parse(words, strict=request.strict, core=core)
    place = place_of(launch, request, precision(arguments))
    unread = (*_unread(arguments, whole=bool(shape)), *place.problems)
    facts = _facts(launch, arguments, place)
    open_words = any(one.cause == "unread_words" for one in unparsed)
    open_words = open_words or any(word.unresolved for word in launch.environment.values())
    lax = not request.strict or open_words
    absence = Absence(facts, *_stated(launch, request, place)) if lax else None
    job, layout, assumed, wrong = _question(arguments, place.cluster, request, absence)
    open_values = any(one.cause == "unread_value" for one in unread)
    elsewhere = not shape and any(dest in arguments for dest in OTHER_FILES)
    checked = (
        () if open_values or elsewhere else tuple(_checked(facts, absence, request, job, layout))
    )
    found: tuple[Field, ...] = ()
    if open_values:
        job = layout = None
    if job is not None:
        found = (*fields(arguments, job, layout, assumed), *place.fields)
    notes = unpriced(facts, job.model if job else None)
    problems = (*launch.problems, *unparsed, *unread, *checked, *wrong, *notes)
    return Reading(MEGATRON_LM.runtime, COMMIT, job, layout, found, tuple(dict.fromkeys(problems)))


def _shape(model: ModelSpec) -> tuple[Word, ...]:
    """Options of the model that the user says, where the launch has it in a file."""
    try:
        training = TrainingSpec(seq_length=1, global_batch_size=1)
        job = Job(model=model, training=training, cluster=parse_cluster("1x8:h100-sxm"))
        texts = [text for one in written_model(job) for text in (one.flag, *one.values)]
    except PlanError:
        return ()
    return tuple(Word(text, OF_RECIPE) for text in texts if isinstance(text, str))


def _unread(arguments: Arguments, *, whole: bool) -> Iterator[Problem]:
    """Values that only a run tells, of options that a price needs, and other files.

    `whole`: the user says the model that such a file has.
    """
    for dest, given in arguments.given.items():
        if given.unresolved and dest in READ:
            says = (
                f"{shown(given.written)} is known to a run alone: give it "
                f"{way_to_state(given.unresolved)}"
            )
            yield Problem("unread_value", "unread", says, given.place)
    for dest, says in OTHER_FILES.items():
        if dest in arguments and not whole:
            text = f"{arguments.flag(dest)} is not read, {says}: give the model with --model"
            yield Problem(f"unread_{dest}", "unread", text, arguments.place(dest))


def _facts(launch: Launch, arguments: Arguments, place: Place) -> Facts:
    world = place.cluster.num_gpus if place.cluster else None
    known = ((name, word) for name, word in launch.environment.items() if not word.unresolved)
    environment = {name: word.text for name, word in known}
    return Facts(arguments, world, environment, place.old_gpu)


def _stated(launch: Launch, request: Request, place: Place) -> tuple[bool, bool]:
    """Are the number of ranks and the GPU stated, by the launch or by the user?"""
    own = request.cluster is not None
    ranks = is_counted(launch) or (own and place.cluster == request.cluster)
    return ranks, own or launch.gpu is not None


def _question(
    arguments: Arguments,
    cluster: ClusterSpec | None,
    request: Request,
    absence: Absence | None,
) -> tuple[Job | None, Layout | None, frozenset[str], tuple[Problem, ...]]:
    """Job and layout, as far as there are any, what of them is assumed, and what is wrong."""
    try:
        model, assumed, problems = _model(arguments, request)
        if model is None or cluster is None:
            return None, None, frozenset(), problems
        training = _training(arguments, cluster, request)
        if training is None:
            return None, None, frozenset(), problems
        options = read_options(
            arguments, model, virtual_stages(arguments, num_layers(arguments) or 0)
        )
        job = Job(
            model=model,
            training=training,
            cluster=cluster,
            runtime=MEGATRON_LM.runtime,
            options=options,
        )
        layout = read_layout(arguments, model, cluster.num_gpus)
    except ValidationError as error:
        says = f"{first_complaint(error).text}: correct the option that sets it"
        return None, None, frozenset(), (_wrong_value(says, absence, cluster, request),)
    job = named(job, request.model)
    if gpu := lacks_format(cluster, job.training.precision):
        says = f"no {job.training.precision} speed of {gpu} is known: choose another format"
        wide = job.training.precision not in LOW_PRECISION  # torch emulates bf16 on Volta
        verdict: Verdict = "unmodelled" if wide else "illegal"
        problems = (*problems, Problem("gpu_lacks_format", verdict, says))
    if layout is not None:
        job = with_exchange(arguments, job, layout)
    return job, layout, assumed, problems


def _wrong_value(
    says: str, absence: Absence | None, cluster: ClusterSpec | None, request: Request
) -> Problem:
    """What no model or layout can be made of: values that are stated, or one that is not."""

    def broken(facts: Facts) -> bool:
        try:
            model, *_ = _model(facts.arguments, request)
            if model is not None and cluster is not None:
                read_layout(facts.arguments, model, cluster.num_gpus)
        except ValidationError:
            return True
        return False

    if absence and not broken(absence.facts):
        return Problem("bad_value", "unmodelled", says)
    if absence and absence.of(Check("bad_value", broken, says)):
        return Problem("bad_value", "unread", NOT_STATED + says, absent=True)
    return Problem("bad_value", "illegal", says)


def _model(
    arguments: Arguments, request: Request
) -> tuple[ModelSpec | None, frozenset[str], tuple[Problem, ...]]:
    """The model, what of it is assumed, and a note on that."""
    if not num_layers(arguments) or not all(arguments.count(dest) for dest in OF_SHAPE):
        return request.model, frozenset(), ()
    size, whose = vocabulary(arguments, request.model_of)
    if size is not None and not whose:
        return read_model(arguments, size), frozenset(), ()
    model = read_model(arguments, request.model.vocab_size if request.model else size or ASSUMED)
    if request.model:
        return model, frozenset(), ()
    alike = None if whose else next(like(model, vocabulary=False), None)
    entries = size or (alike.vocab_size if alike else ASSUMED)
    if not whose:
        same = f"as of {alike.name}, which has the same shape" if alike else ""
        whose = same or "of no model in particular"
    says = (
        f"the size of the vocabulary is known to the tokenizer alone: {entries:,} are assumed, "
        f"{whose}; give --set vocab_size=N, or --model"
    )
    problem = Problem("assumed_vocabulary", "unread", says)
    model = model.model_copy(update={"vocab_size": entries})
    return model, frozenset({"model.vocab_size"}), (problem,)


def _training(arguments: Arguments, cluster: ClusterSpec, request: Request) -> TrainingSpec | None:
    """Length, batch, format and tokens; null: there is no length or no batch."""
    length = arguments.whole(length_key(arguments)) or arguments.whole("encoder_seq_length")
    micro = arguments.count(keys.MICRO_BATCH)
    whole = arguments.whole(keys.BATCH) or request.global_batch_size
    length, batch = (
        length or request.seq_length,
        whole or micro * (cluster.num_gpus // inner_ranks(arguments)),
    )
    if not length or not batch:
        return None
    sequences = arguments.count(keys.STEPS) * batch or arguments.count("train_samples")
    return TrainingSpec(
        seq_length=length,
        global_batch_size=batch,
        precision=precision(arguments),
        tokens=sequences * length or None,
        optimizer=read_optimizer(arguments),
    )


def _breaks(name: str, request: Request, cluster: ClusterSpec, facts: Facts) -> bool:
    """Would a launch of such arguments break a rule of the cost model, or be none?"""
    times = max(1, (facts.world or 0) // cluster.num_gpus)
    return all(_stops(name, request, one, facts) for one in _grown(cluster, times))


def _grown(cluster: ClusterSpec, times: int) -> Iterator[ClusterSpec]:
    """With so many times the ranks: on more nodes, or on more GPUs of each where there is room."""
    first, *others = cluster.groups
    sizes = [("num_nodes", first.num_nodes)]
    if 1 < times <= USUAL_NODE / first.gpus_per_node:
        sizes.append(("gpus_per_node", first.gpus_per_node))
    for field, size in sizes:
        more = first.model_copy(update={field: size * times})
        yield cluster.model_copy(update={"groups": (more, *others)})


def _stops(name: str, request: Request, cluster: ClusterSpec, facts: Facts) -> bool:
    job, layout, *_ = _question(facts.arguments, cluster, request, None)
    if job is None or layout is None:
        return True
    table, rules = LayoutTable.of([layout]), rules_of_job(job)
    return any(rule.broken(job, table)[0] for rule in rules if rule.name == name)


def _checked(
    facts: Facts,
    absence: Absence | None,
    request: Request,
    job: Job | None,
    layout: Layout | None,
) -> Iterator[Problem]:
    """What the runtime stops at, in its order; the rules of the cost model where it asks them.

    Without `absence` what is not stated is what the runtime takes without it.
    """
    rules = {}
    if job is not None and layout is not None:
        rules = {rule.name: rule for rule in broken_rules(job, LayoutTable.of([layout]))[0]}
    lines: dict[str, Verdict] = {}
    verdict: Verdict
    for check in (*CHECKS, *rules):
        lacking = ""
        if isinstance(check, Check):
            cause, place = check.cause, facts.arguments.place(check.dest)
            if lines.get(cause) == "illegal" or not (numbers := check.broken(facts)):
                continue
            says = check.says + (f" ({numbers})" if isinstance(numbers, str) else "")
            lacking, verdict = absence.of(check) if absence else "", "illegal"
        elif job and check in rules and check not in {*lines, *STATED_ELSEWHERE}:
            cause, says, place = check, rules[check].says, None
            verdict = VERDICTS.get(check, "illegal")
            alike = Check(check, partial(_breaks, check, request, job.cluster), says)
            if verdict == "illegal" and absence and absence.of_rule(rules[check], alike):
                lacking = "option"
        else:
            continue
        if lacking:
            verdict, says = "unread", NOT_STATED + says
        if cause not in lines or verdict == "illegal":
            lines[cause] = verdict
            yield Problem(cause, verdict, says, place, lacking == "option")
