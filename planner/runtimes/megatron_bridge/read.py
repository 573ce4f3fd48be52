"""Megatron-Bridge: from a recipe and its `KEY=VALUE` back to a job and a layout.

Keys become the options of Megatron-LM that they stand for, and its reader reads those.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec, projections
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.key_tables import KeyTable, key_table
from trainplan.planner.runtimes.megatron_bridge.checks import LAYOUT, bridge_checks, is_set
from trainplan.planner.runtimes.megatron_bridge.read_keys import LETTERS, options_of, plain
from trainplan.planner.runtimes.megatron_bridge.read_launch import (
    BENCHMARKED,
    BENCHMARKS,
    NOTHING,
    PROGRAMS,
    counted_by,
    recipe_of,
    written_of,
)
from trainplan.planner.runtimes.megatron_bridge.read_own_keys import nested_key, own_keys
from trainplan.planner.runtimes.megatron_bridge.read_recipes import PRECISIONS, Recipe
from trainplan.planner.runtimes.megatron_bridge.write import (
    COMMIT,
    NARROW_ATTENTION,
    STORE,
    usual_dispatcher,
)
from trainplan.planner.runtimes.megatron_bridge.write import MEGATRON_BRIDGE as EXPORTER
from trainplan.planner.runtimes.megatron_bridge.write_recipe import MODULE, SEPARATE, WHOLE
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.write import written_model
from trainplan.planner.runtimes.ranks import is_counted
from trainplan.planner.runtimes.reading import OF_RECIPE, Field, Reader, Reading, Request
from trainplan.planner.shell import Launch, Problem, Word

ADAPTED = re.compile(r"recipe\.peft = (\w+)\(target_modules=(\[[^\]]*\]), dim=(\d{1,5}),")
"""As `write_recipe.ADAPTERS` has it."""
UNREAD_ADAPTERS = "which adapters it trains is not read"

NOT_OURS = frozenset(
    {
        *("device_max_connections", "fp8_gather_needs_sharding"),
        *("gather_overlap_needs_sharding", "gathers_overlap_with_reductions"),
    }
)
"""What Megatron-LM's own validator says, which Bridge does not run. Source: Megatron-Bridge
@067f987d `src/megatron/bridge/training/config.py`, which asks for queues under FSDP alone."""


def recognises(launch: Launch) -> bool:
    """Is it the program that runs recipes, or one of our exports?"""
    if launch.is_module:
        return launch.program.text == MODULE
    name, words = PurePosixPath(launch.program.text).name, (one.text for one in launch.arguments)
    chooses = any(LETTERS.get(one, one).startswith(BENCHMARKED) for one in words)
    return name in PROGRAMS or (name.endswith(BENCHMARKS) and chooses)


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout of a launch, and what is wrong with it."""
    written = written_of(launch.arguments, strict=request.strict)
    recipe, problems = recipe_of(launch, written, request)
    launch = counted_by(launch, written)
    if not launch.is_module and recipe is None:
        return Reading(EXPORTER.runtime, COMMIT, None, None, (), (*written.problems, *problems))
    stated = written.keys
    if recipe and recipe.nested and BENCHMARKED in written.named:
        stated = {nested_key(key): word for key, word in stated.items()}
    keys, wrong = own_keys(stated, recipe, strict=request.strict)
    table = key_table("megatron_bridge")
    every = _in_effect(_with_precision(_base(recipe) | keys))
    given = dict(options_of(table, every))
    own = recipe.spec if recipe else None
    model = request.model or own
    shape = _shape(own) if own else {}
    if recipe is not None:
        variables = {name: Word(text, OF_RECIPE) for name, text in recipe.environment.items()}
        launch = replace(launch, environment=variables | dict(launch.environment))
    flags = shape | _completed(given, model)
    if own is not None and not shape:  # its own words say another model than these options would
        flags = {flag: words for flag, words in flags.items() if flag not in SHAPE}
        flags[LAYERS] = [_word(str(own.num_hidden_layers))]
        flags |= {drop: [_word("0")] for drop in DROPS}
    arguments = [word for flag, words in flags.items() for word in _option(flag, words)]
    program = replace(launch.program, text="pretrain_gpt.py")
    lone = replace(launch, program=program, arguments=tuple(arguments), is_module=False)
    whole = recipe is not None and recipe.file != OF_RECIPE.file
    whole = whole and (is_counted(launch) or request.cluster is not None)
    strict = request.strict or whole  # of a text that is read whole, what is absent is a default
    reading = MEGATRON_LM.read(lone, replace(request, model=model, strict=strict))
    wrong = (*problems, *wrong)
    given |= {
        key: [word]
        for key, word in (_base(recipe) | keys).items()
        if key in (STORE, NARROW_ATTENTION)
    }
    if recipe and not shape and (own is not None or LAYERS not in flags):
        hold = OF_DEGREES | (OF_LAYERS if own is not None else frozenset())
        reading = replace(reading, problems=tuple(_held(reading.problems, hold)))
    open_keys = any(one.cause == "unread_value" for one in problems)
    if open_keys:
        known = tuple(one for one in reading.problems if one.verdict != "illegal")
        reading = replace(reading, job=None, layout=None, problems=known)
    own_checks = () if open_keys else tuple(bridge_checks(every, model))
    seen = {one.cause for one in own_checks}
    rest = tuple(one for one in reading.problems if one.cause not in seen)
    reading = replace(reading, problems=rest)
    wrong = (*wrong, *own_checks)
    reading = replace(reading, problems=tuple(_as_validated(reading.problems, every)))
    found = _as_bridge(reading, table, keys, given, (*written.problems, *wrong))
    if launch.is_module:
        text = request.text_of(f"{MODULE}.py") or ""
        return _as_planned(found, recipe, text, given)
    if recipe and recipe.adapters:
        found = _adapted(found, recipe.adapters)
    return replace(found, own_name=nested_key) if recipe and recipe.nested else found


def _as_planned(
    found: Reading, recipe: Recipe | None, text: str, given: Mapping[str, list[Word]]
) -> Reading:
    """Our own export: of the model of the plan unless a key says another, with its adapters."""
    if recipe and recipe.spec and found.job and given.keys().isdisjoint(RESHAPED):
        job = found.job.model_copy(update={"model": recipe.spec})
        found = replace(found, job=job)
    return _adapted(found, text) if ADAPTED.search(text) else found


def _in_effect(keys: dict[str, Word]) -> dict[str, Word]:
    """Keys under the names that count, without those that nothing switches on."""
    scope = keys.get(SCOPE)
    if scope is not None and MODULES not in keys and scope.text.startswith("["):
        keys = keys | {MODULES: scope}
    if is_set(keys.get(LENGTH)):  # scripts/training/recipe_runner.py makes both one
        keys = keys | {"model.seq_length": keys[LENGTH]}
    if is_set(pattern := keys.get(PATTERN)) and LAYOUT not in keys and pattern is not None:
        keys = keys | {LAYOUT: replace(pattern, text=_dealt(plain(pattern.text)))}
    off = keys.get("model.cpu_offloading", NOTHING).text != "true"
    return {k: w for k, w in keys.items() if not (off and k.startswith("model.cpu_offloading"))}


def _dealt(pattern: str) -> str:
    """The stages of a pattern of layers, a sign for each, as a layout has them."""
    counts = (len(stage) for stage in pattern.partition("/")[0].split("|"))
    return f"E{'|'.join(f't*{count}' for count in counts)}L"


def _as_validated(problems: Iterable[Problem], keys: Mapping[str, Word]) -> Iterator[Problem]:
    """As far as this runtime stops at the same: it checks fewer things than Megatron-LM."""
    saves = any(keys.get(f"checkpoint.{one}", NOTHING).text != "null" for one in SAVED)
    for one in problems:
        if one.cause == "bad_value" and one.place in (OF_RECIPE, None):
            yield replace(one, cause="unread_value", verdict="unread")
        elif one.cause != "fsdp_checkpoint_format" or saves:
            yield one


def _adapted(found: Reading, recipe: str) -> Reading:
    """With the adapters of our own recipe, whose keys do not say them."""
    job, written = found.job, ADAPTED.search(recipe)
    if job is None or job.model.trained:
        return found
    if written is None:
        says = f"{UNREAD_ADAPTERS}: give --train with --model"
        unread = Problem("unread_adapters", "unread", says)
        return replace(found, job=None, problems=(*found.problems, unread))
    kind, modules, rank = written.groups()
    table = WHOLE if kind == "LoRA" else SEPARATE
    words = set(re.findall(r"\w+", modules))
    there = {name for one in job.model.kinds for name in projections(one)}
    names = tuple(name for name in table if name in there and table[name] in words)
    every = ("all",) if there <= set(names) else names
    trained = {"method": "lora", "rank": int(rank), "modules": every}
    try:
        model = ModelSpec.model_validate(job.model.model_dump() | {"trained": trained})
    except ValidationError:  # of a tower that is trained too
        return _adapted(found, "unread")
    assert model.trained
    field = Field("model.trained", model.trained.text, "stated", written.group().strip())
    job = job.model_copy(update={"model": model})
    return replace(found, job=job, fields=(*found.fields, field))


SCOPE, MODULES = "model.cuda_graph_scope", "model.cuda_graph_modules"
SAVED = ("save", "load")
LENGTH = "dataset.seq_length"
PATTERN = "model.hybrid_layer_pattern"


def _base(recipe: Recipe | None) -> dict[str, Word]:
    keys = recipe.keys if recipe else {}
    return {key: Word(text, OF_RECIPE) for key, text in keys.items()}


def _with_precision(keys: dict[str, Word]) -> dict[str, Word]:
    """A named format as the keys it stands for."""
    name = keys.get("mixed_precision")
    if name is None:
        return keys
    values = PRECISIONS.get(name.text.strip("\"'").replace("-", "_"), {})
    others = {k: w for k, w in keys.items() if not k.startswith("mixed_precision.")}
    return others | {f"mixed_precision.{k}": replace(name, text=v) for k, v in values.items()}


def _shape(model: ModelSpec) -> dict[str, list[Word]]:
    """Options that say the model of a recipe; none where Megatron-LM has none for it."""
    training = TrainingSpec(seq_length=1, global_batch_size=1)
    job = Job(model=model, training=training, cluster=parse_cluster("1x8:h100-sxm"))
    try:
        written = list(written_model(job))
    except UnsupportedError:
        return {}
    flags = {one.flag: [_word(v) for v in one.values if isinstance(v, str)] for one in written}
    del flags["--seq-length"]  # no part of the model
    plain = model.linear_attention is None and model.ssm is None  # as options are read back
    return flags if plain and LAYERS in flags else {}


def _held(problems: Iterable[Problem], causes: frozenset[str]) -> Iterator[Problem]:
    """Without those that hang on the shape, which no option says."""
    for one in problems:
        sure = one.verdict not in ("illegal", "ignored") and not one.absent
        if one.cause in causes or sure:
            yield one


LAYERS = "--num-layers"
DROPS = ("--hidden-dropout", "--attention-dropout")
SHAPE = frozenset(
    {LAYERS, "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--kv-channels"}
)
RESHAPED = SHAPE | {keys.EXPERTS.flag, keys.VOCABULARY.flag, keys.PREDICTIONS.flag}
"""Options with which a launch is of another model than was planned."""
OF_DEGREES = frozenset(
    {
        *("degrees_divide_world", "experts_fold_into_ranks", "micro_batch_divides_batch"),
        *("stages_fill_pipeline", "hierarchical_sizes", "cp_divides_sequence"),
        *("fsdp_checkpoint_format", "learning_rates"),
    }
)
"""Causes that only degrees, batch and length are needed for."""
OF_LAYERS = frozenset({"first_last_stages_divide"})
"""And the number of layers."""


def _completed(given: Mapping[str, list[Word]], model: ModelSpec | None) -> dict[str, list[Word]]:
    """With what the runtime does by itself, and Megatron-LM when told."""
    flags = dict(given)
    if keys.FP16.flag not in flags:
        flags[keys.BF16.flag] = []
    if keys.GROUPS.flag in flags:
        flags[keys.GROUPED.flag] = []
    if keys.EP.flag in flags:  # models/transformer_config.py, finalize
        flags.setdefault(keys.ETP.flag, [_word("1")])
    if keys.EXPERTS.flag in flags or (model and model.moe):  # models/*/*_bridge.py
        flags.setdefault(keys.DISPATCHER.flag, [_word("alltoall")])
    if keys.LENGTH.flag in flags:
        flags[keys.MAX_POSITIONS.flag] = [_positions(flags[keys.LENGTH.flag][0], model)]
    return {flag: words for flag, words in flags.items() if not _idle(flag, flags)}


def _positions(length: Word, model: ModelSpec | None) -> Word:
    """No key says how many positions there are."""
    longest = model.max_position_embeddings if model else 0
    within = length.text.isdigit() and int(length.text[:LONGEST]) < longest
    return _word(str(longest)) if within else length


LONGEST = 9
"""Digits of a length that are read."""


def _idle(flag: str, flags: Mapping[str, list[Word]]) -> bool:
    """Does the key mean nothing beside the others, though the option would?"""
    if flag == keys.VPP.flag:
        return keys.STAGES.flag in flags
    if flag in (keys.FSDP_STRATEGY.flag, keys.FSDP_GRADIENTS.flag):
        return keys.FSDP.flag not in flags
    if flag == keys.TP_OVERLAP.flag:  # comm_overlap.py switches it off
        degree = flags.get(keys.TP.flag, [_word("1")])[0].text
        return keys.SEQUENCE_PARALLEL.flag not in flags or degree == "1"
    return flag == keys.LOSS_KERNEL.flag and flags[flag][0].text == "te"


def _option(flag: str, values: Sequence[Word]) -> Iterator[Word]:
    """An option stands where its value does."""
    yield Word(flag, values[0].place if values else OF_RECIPE)
    yield from values


def _word(text: str) -> Word:
    return Word(text, OF_RECIPE)


def _as_bridge(
    reading: Reading,
    table: KeyTable,
    keys: Mapping[str, Word],
    given: Mapping[str, list[Word]],
    problems: tuple[Problem, ...],
) -> Reading:
    """The reading in the words of this runtime, with its defaults."""
    names = {
        flag: templates[0].partition("=")[0]
        for part in (table.absent, table.keys)
        for flag, templates in part.items()
        if templates
    }
    fields = tuple(_renamed(field, names, keys) for field in reading.fields)
    others = tuple(
        replace(problem, says=_in_keys(problem.says, names))
        for problem in reading.problems
        if problem.cause not in NOT_OURS
        and (problem.verdict == "illegal" or problem.place != OF_RECIPE)
    )
    job = None
    if reading.job is not None:
        options = _own_options(reading.job, reading.layout, given)
        job = reading.job.model_copy(update={"runtime": EXPORTER.runtime, "options": options})
    found = tuple(dict.fromkeys((*problems, *others)))
    return Reading(EXPORTER.runtime, COMMIT, job, reading.layout, fields, found)


def _renamed(field: Field, names: Mapping[str, str], keys: Mapping[str, Word]) -> Field:
    flag = field.written.split(" ", 1)[0]
    key = names.get(flag)
    if key is None:
        return field
    stated = keys.get(key)
    if stated is not None:
        return replace(field, written=f"{key}={stated.text}", place=stated.place, origin="stated")
    origin = "default" if field.place == OF_RECIPE else field.origin
    return replace(field, written=_in_keys(field.written, names), origin=origin, place=None)


def _in_keys(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"--[a-z0-9][a-z0-9-]*", lambda m: names.get(m[0], m[0]), text)


def _own_options(
    job: Job, layout: Layout | None, given: Mapping[str, list[Word]]
) -> RuntimeOptions:
    """Settings as this runtime states them: null is what its recipes do.

    Source: `costmodel.runtimes.megatron_bridge`.
    """
    options = job.options
    casts, blocks = job.training.casts, options.fp8_recipe == "blockwise"
    narrow = options.gradient_dtype == "bf16" or job.training.precision == "fp16"
    wide = narrow and options.gradient_dtype is None  # read as those of Megatron-LM
    alone = options.fp8_param_gather or not casts
    fused = keys.LOSS_FUSION.flag in given
    native = any(word.text == "native" for word in given.get(keys.LOSS_KERNEL.flag, ()))
    parallel = layout is not None and layout.tp > 1 and layout.sequence_parallel
    attends = casts and not blocks and _is_on(given, NARROW_ATTENTION)  # blocks cast none of it
    idle = options.overlap_tp_comm or job.model.mla is not None or not parallel
    sharded = layout is not None and layout.zero_stage > 0
    gathers = keys.GATHER_OVERLAP.flag in given or not sharded
    plain = job.model_copy(
        update={
            "runtime": EXPORTER.runtime,
            "options": options.model_copy(update={"moe_dispatcher": None}),
        }
    )
    usual = layout and usual_dispatcher(plain, layout)
    dispatcher = options.moe_dispatcher or ("alltoall" if usual else None)
    return options.model_copy(
        update={
            "moe_dispatcher": None if dispatcher == usual else dispatcher,
            "bucket_mb": options.bucket_mb / 2 if options.bucket_mb and wide else options.bucket_mb,
            "gradient_dtype": None if narrow else "fp32",
            "fp8_param_gather": None if alone else False,
            "activation_func_fp8_input_store": True if _is_on(given, STORE) else None,
            "fp8_attention": True if attends else None,
            "cross_entropy": ("jit" if native else None) if fused else "unfused",
            "overlap_tp_comm": None if idle else False,
            "overlap_param_gather": None if gathers else False,
        }
    )


def _is_on(given: Mapping[str, list[Word]], name: str) -> bool:
    return any(plain(word.text) == "true" for word in given.get(name, ()))


MEGATRON_BRIDGE = Reader(EXPORTER.runtime, recognises, read)
