"""Keys of another project as options of Megatron-LM, which its reader reads; then back again."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.planner.runtimes.foreign.documents import Keys
from trainplan.planner.runtimes.foreign.tables import (
    DEFAULT,
    RANKS_OPEN,
    Table,
    count,
    lifted,
    mentioned,
    moved,
    ranks_stated,
    stated,
)
from trainplan.planner.runtimes.megatron_bridge.read_keys import AS_LIST, NOTHING, ONE_WORD, plain
from trainplan.planner.runtimes.megatron_lm import keys as own
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.read.parser import options
from trainplan.planner.runtimes.megatron_lm.write import written_model
from trainplan.planner.runtimes.ranks import counts_of
from trainplan.planner.runtimes.reading import Field, Reading, Request
from trainplan.planner.shell import Launch, Place, Problem, Verdict, Word

Flags = dict[str, list[Word]]
"""Options with the words of their values."""
OF_CORE = frozenset(
    {
        "degrees_divide_world",
        "micro_batch_divides_batch",
        "tp_divides_heads",
        "tp_fits_key_value_heads",
        "pp_divides_layers",
        "virtual_stages_divide_layers",
        "vpp_needs_pp",
        "ep_divides_experts",
        "ep_needs_experts",
        "experts_fold_into_ranks",
        "heads_divide_hidden",
        "cp_divides_sequence",
    }
)
"""What stops every engine on Megatron-Core. Source: `megatron/core/transformer/
transformer_config.py` and `megatron/core/parallel_state.py`."""
OF_RANKS = frozenset({"degrees_divide_world", "micro_batch_divides_batch"})
"""Of these, what hangs on no model."""
OF_LAUNCHER = frozenset(
    {"missing_flag", "device_max_connections", "unknown_flag", "fsdp_needs_queues"}
)
"""What the validator of Megatron-LM alone says, or what stands in keys that were not read."""
OF_DATA = frozenset(
    {own.TOKENIZER.flag, own.DATA.flag, own.SAVE.flag, "--load", own.CHECKPOINTS.flag}
)
"""Options that move no step time and whose values a project may have its own of."""
DEGREES = (own.TP, own.PP, own.CP)
ROWS = {"tp": own.TP, "pp": own.PP, "cp": own.CP, "ep": own.EP, "micro_batch_size": own.MICRO_BATCH}
"""Fields that are named where the rest does not make a job."""


def read(
    table: Table, launch: Launch, request: Request, keys: Keys, model: ModelSpec | None
) -> Reading:
    """The launch under the reader of Megatron-LM."""
    own_keys = {**table.usual(), **lifted(table, keys)}
    names: dict[str, str] = {}
    flags = _flags(table, own_keys, names, partial(_entries, request))
    given = _with_shape(flags, model)
    launch = ranks_stated(table, own_keys, launch, _inner(given))
    _batch(table, own_keys, launch, request, given)
    _completed(given, model)
    words = [word for flag, values in given.items() for word in (_option(flag, values), *values)]
    lone = replace(launch, arguments=tuple(words), is_module=False, document={}, environment={})
    reading = MEGATRON_LM.read(lone, replace(request, model=model))
    return _as_project(table, reading, names, given, launch)


def _flags(
    table: Table,
    keys: Mapping[str, Word],
    names: dict[str, str],
    entries_of: Callable[[str], int | None],
) -> Flags:
    """Options that the keys stand for; `names` gets the key of each."""
    flags: Flags = {}
    if table.own_names:
        for flag, key, word in _by_name(table, keys):
            names[flag] = key
            flags[flag] = _values(flag, word)
    ruled: set[str] = set()
    for name, rules in table.rules().items():
        flag, *fixed = name.split(" ")
        found = stated(rules, keys)
        if found is None or flag in ruled:
            continue
        ruled.add(flag)
        key, word = found
        names[flag] = key
        flags[flag] = [moved(word, one) for one in fixed] or _values(flag, word)
    vocabulary = stated(table.places.get("vocabulary", ()), keys)
    if vocabulary and own.VOCABULARY.flag not in flags and (size := entries_of(vocabulary[1].text)):
        flags[own.VOCABULARY.flag] = [moved(vocabulary[1], str(size))]
    return flags


def _entries(request: Request, name: str) -> int | None:
    """Entries of the vocabulary of a model whose tokenizer is named."""
    model = request.model_of(name)
    return model.vocab_size if model else None


def _by_name(table: Table, keys: Mapping[str, Word]) -> Iterator[tuple[str, str, Word]]:
    """Options whose name, or whose name in the code, is that of a key."""
    by_code = table.own_names == "dest"
    for flag, option in options().items():
        if flag in OF_DATA:
            continue
        name = option.dest if by_code else flag.removeprefix("--").replace("-", "_")
        word = keys.get(name)
        switch = keys.get(own.GROUPED) if flag == own.GROUPS.flag else None
        if word is None or (switch and plain(switch.text).lower() == "false"):
            continue
        text = plain(word.text)
        if option.action == "store":
            if word.unresolved or text.lower() not in (*NOTHING, "[]", "false"):
                yield flag, name, word
        else:
            off = by_code and (option.action == "store_false" or flag.startswith("--no-"))
            if text == ("false" if off else "true"):
                yield flag, name, word


def _values(flag: str, word: Word) -> list[Word]:
    """The value of a key as words of an option."""
    option = options()[flag]
    if option.action != "store":
        return []
    if word.unresolved:
        return [word]
    text = plain(word.text).strip()
    several = option.nargs is not None and (text[:1] in "[(" or "," in text)
    if not several or flag in ONE_WORD:
        if flag == AS_LIST:
            return [moved(word, re.sub(r"\s+", "", text))]
        whole = option.type == "int" and re.fullmatch(r"\d+\.0", text)
        return [moved(word, text.removesuffix(".0") if whole else text)]
    return [moved(word, one) for one in re.sub(r"[\s'\"]+", "", text.strip("[]()")).split(",")]


def _with_shape(flags: Flags, model: ModelSpec | None) -> Flags:
    """With the options that say the model which is named."""
    if model is None:
        return dict(flags)
    training = TrainingSpec(seq_length=1, global_batch_size=1)
    whole = model.model_copy(update={"trained": None})
    job = Job(model=whole, training=training, cluster=parse_cluster("1x8:h100-sxm"))
    try:
        shape = {
            one.flag: [Word(v, DEFAULT) for v in one.values if isinstance(v, str)]
            for one in written_model(job)
            if one.flag != own.LENGTH.flag
        }
    except PlanError:
        shape = {}
    return shape | flags


def _inner(flags: Flags) -> int:
    """Ranks of one replica."""
    return prod(count(flags[one.flag][0]) or 1 for one in DEGREES if one.flag in flags)


def _batch(
    table: Table, keys: Mapping[str, Word], launch: Launch, request: Request, flags: Flags
) -> None:
    """The global batch of what counts micro batches of a replica."""
    found = stated(table.places.get("accumulation", ()), keys)
    micro = flags.get(own.MICRO_BATCH.flag)
    steps = count(found[1]) if found else None
    if own.BATCH.flag in flags or not micro or not steps or found is None:
        return
    counts = counts_of(launch)
    world = request.cluster.num_gpus if request.cluster else counts and counts[0] * counts[1]
    inner, each = _inner(flags), count(micro[0])
    if world and each and world % inner == 0:
        flags[own.BATCH.flag] = [moved(found[1], str(each * steps * (world // inner)))]


def _completed(flags: Flags, model: ModelSpec | None) -> None:
    """What such engines do by themselves and Megatron-LM when told."""
    if own.FP16.flag not in flags and own.BF16.flag not in flags:
        flags[own.BF16.flag] = []
    if own.EXPERTS.flag in flags or (model and model.moe):
        flags.setdefault(own.DISPATCHER.flag, [Word("alltoall", DEFAULT)])
    if own.FP16.flag in flags and own.BF16.flag in flags:
        del flags[own.BF16.flag]
    if own.GROUPS.flag in flags and own.LATENT.flag not in flags:
        flags.setdefault(own.GROUPED.flag, [])
    length = flags.get(own.LENGTH.flag)
    if length and (size := count(length[0])):
        longest = model.max_position_embeddings if model else 0
        stated_positions = flags.get(own.MAX_POSITIONS.flag, [])
        positions = (stated_positions and count(stated_positions[0])) or longest
        if positions < size:
            flags[own.MAX_POSITIONS.flag] = [moved(length[0], str(size))]


def _option(flag: str, values: list[Word]) -> Word:
    """An option stands where its value does."""
    return Word(flag, values[0].place if values else DEFAULT)


def _as_project(
    table: Table, reading: Reading, names: Mapping[str, str], flags: Flags, launch: Launch
) -> Reading:
    """The reading in the project's own words."""
    fields = tuple(_renamed(one, names) for one in reading.fields)
    here = (launch.program.place.file, *(word.place.file for word in launch.arguments))
    shape = own.LAYERS.flag in flags
    known = frozenset() if _open(launch) else OF_CORE if shape else OF_RANKS
    if table.shares_ranks:
        known -= OF_RANKS
    problems = tuple(
        _verdict(table, one, names, known)
        for one in reading.problems
        if _counts(one, here)
        and (shape or one.cause in OF_RANKS or (one.verdict == "unread" and not one.absent))
    )
    job = reading.job
    if job is None:
        fields = (*_rows(flags, names, launch), *fields)
        problems = (*problems, *_lacking(table, flags, launch))
    return replace(
        reading,
        fields=fields,
        problems=problems,
        own_name=lambda name: names.get(name) or _own_name(table, name),
    )


def _lacking(table: Table, flags: Flags, launch: Launch) -> Iterator[Problem]:
    """What is not said and without which there is no price."""
    wanted = {
        own.LAYERS: "--model",
        own.HIDDEN: "--model",
        own.HEADS: "--model",
        own.LENGTH: "--seq-length",
        own.MICRO_BATCH: "",
    }
    missing = {key: option for key, option in wanted.items() if key.flag not in flags}
    if not missing:
        return
    names = [_own_name(table, key.flag) for key in missing]
    given = " and ".join(dict.fromkeys(option for option in missing.values() if option))
    says = (
        f"not stated in what was read: {', '.join(names)}: add "
        f"{'it' if len(names) == 1 else 'them'}"
    )
    says += f", or give {given}" if given else ""
    yield Problem("unread_job", "unread", says, launch.program.place)


def _own_name(table: Table, flag: str) -> str:
    """The key that says an option."""
    rules = table.rules().get(flag)
    if rules:
        return rules[0].partition("=")[0].strip()
    return flag.removeprefix("--").replace("-", "_") if table.own_names else flag


def _counts(problem: Problem, here: Sequence[str | None]) -> bool:
    """Is it of what was read, and not of what Megatron-LM alone asks for?

    What a file that others share says in vain is no news.
    """
    if problem.verdict in ("illegal", "unread") and problem.cause in OF_LAUNCHER:
        return False
    stated_here = problem.place is None or problem.place.file in here
    return problem.verdict == "illegal" or stated_here or problem.verdict == "unmodelled"


def _open(launch: Launch) -> bool:
    """Are there words of which only a run would tell what they say?"""
    return any(word.unresolved and word.text.startswith("$") for word in launch.arguments)


def _verdict(
    table: Table, problem: Problem, names: Mapping[str, str], known: frozenset[str]
) -> Problem:
    """What stops Megatron-LM stops the project where its engine has the rule."""
    verdict: Verdict = problem.verdict
    if verdict == "illegal" and not (table.core and problem.cause in known):
        verdict = "unread" if problem.cause == "bad_value" else "unmodelled"
    place = None if problem.place == DEFAULT else problem.place
    says = RANKS_OPEN if problem.cause == "world_size" else _in_keys(problem.says, names)
    return replace(problem, verdict=verdict, says=says, place=place)


def _renamed(one: Field, names: Mapping[str, str]) -> Field:
    place: Place | None = None if one.place == DEFAULT else one.place
    usual = one.place == DEFAULT or (one.origin == "stated" and place is None)
    return replace(
        one,
        written=_in_keys(one.written, names),
        place=place,
        origin="default" if usual and one.origin == "stated" else one.origin,
    )


def _in_keys(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"--[a-z0-9][a-z0-9-]*", lambda m: names.get(m[0], m[0]), text)


def _rows(flags: Flags, names: Mapping[str, str], launch: Launch) -> Iterator[Field]:
    """Degrees and ranks of a launch that says no whole job."""
    for name, key in ROWS.items():
        values = flags.get(key.flag)
        number = count(values[0]) if values else None
        if values and number is not None:
            written = f"{names.get(key.flag, key.flag)}={number}"
            yield Field(f"layout.{name}", number, "stated", written, values[0].place)
    for name, word in (("num_nodes", launch.nodes), ("gpus_per_node", launch.gpus_per_node)):
        if (number := count(word)) is not None and word is not None:
            yield Field(f"cluster.{name}", number, "stated", word.text, word.place)


def used(table: Table) -> frozenset[str]:
    """Keys that are read, or known to move nothing."""
    known = set(mentioned(table))
    if table.own_names == "dest":
        known |= {one.dest for one in options().values()}
    elif table.own_names:
        known |= {flag.removeprefix("--").replace("-", "_") for flag in options()}
    return frozenset(known)
