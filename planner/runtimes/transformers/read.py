"""transformers: the file of arguments that `plan export` writes, alone or named by its script."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from trainplan.costmodel.job import Job, OptimizerSpec, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.optimizers import optimizer_of
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.runtimes.exporter import recorded
from trainplan.planner.runtimes.keys import (
    MOST_PARTS,
    Entry,
    Keys,
    Notes,
    Option,
    few,
    is_small,
    lines_of,
    yaml_mapping,
)
from trainplan.planner.runtimes.ranks import is_silent, ranks_of
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.runtimes.training_script.read import (
    FULL,
    batch_fits,
    cluster_of,
    model_of,
    note_layout,
    sequence_of,
)
from trainplan.planner.runtimes.training_script.read import text_of as read_text
from trainplan.planner.runtimes.training_script.script import Script, script_of
from trainplan.planner.runtimes.transformers import keys as k
from trainplan.planner.shell import Launch, Place, Word

OPTIMIZERS = {word: name for name, word in reversed(RUNTIMES[k.RUNTIME].optimizers)} | {
    k.LISTS: "adamw",
    k.ADAPTERS: "adamw",
}
"""Ours, by words of OptimizerNames."""
EXCHANGES = {word: name for name, word in k.STRATEGIES.items()}
PRICED = ("optim_target_modules",)
"""Options of scripts that have a price here."""
MARKS = ("mesh", "distributed_config", "compute_dtype")
"""Keys that only its file has."""


def recognises(launch: Launch) -> bool:
    """By the module's name, or by keys of the file alone."""
    if launch.alone:
        return "compute_dtype" in launch.document and launch.format == "hf_arguments"
    return PurePosixPath(launch.program.text).name in (k.MODULE, f"{k.MODULE}.py")


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout that the arguments say."""
    notes = Notes(problems=list(launch.problems), strict=request.strict)
    keys = _keys_of(notes, launch, request)
    job, layout = (None, None) if keys is None else _read(keys, launch, request)
    found = (tuple(notes.fields), tuple(notes.problems))
    return Reading(k.RUNTIME, k.VERSION, job, layout, *found)


def _keys_of(notes: Notes, launch: Launch, request: Request) -> Keys | None:
    """What the file says, and over it what the command does; null, with a problem: no file."""
    options = script_of(launch.arguments).options
    named = options.get(k.CONFIG.removeprefix("--"), (None, None))[0]
    path = launch.program if launch.alone else named or Word(k.FILE, launch.program.place)
    text = read_text(notes, path, request)
    config = None if text is None else yaml_mapping(notes, text, path.text, f"write {k.FILE}")
    if config is None or text is None:
        return None
    if not is_small(config):
        says = f"{path.text} has more than {MOST_PARTS:,} values: give one without the rest"
        notes.problem("unread_config", "unread", says, path.place)
        return None
    keys, lines = Keys(notes, file=path.text), lines_of(text)
    for name, value in _flat(config):
        place = Place(path.text, lines.get(name.rpartition(".")[2]))
        keys.entries[name] = Entry(value, "stated", f"{name}: {str(value)[:60]}", place)
    known = recorded(k.RECORDED)
    for name in few([one for one in config if f"--{one}" not in known]):
        says = f"{name[:60]} is no argument of {k.MODULE}.py or of TrainingArguments: correct it"
        keys.problem("unknown_key", "illegal", says, name)
    for name, (value, word) in options.items():
        if f"--{name}" in known:
            text = "true" if value is None else value.text
            keys.entries[name] = Entry(text, "stated", f"--{name} {text[:60]}", word.place)
    return keys


def _flat(config: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Values by their keys with those that they stand in; lists as words with commas."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value is not None:
            listed = ",".join(map(str, value)) if isinstance(value, list) else value
            yield f"{before}{name}", listed


def _script(keys: Keys) -> Script:
    """As arguments of a script of one's own."""
    words: list[Word] = []
    for name, entry in keys.entries.items():
        own = entry.value == name.upper() or entry.value == "MODEL"  # a variable, not filled in
        if "." not in name and entry.place is not None and not own:
            words += (Word(f"--{name}", entry.place), Word(str(entry.value), entry.place))
    return script_of(words)


def _read(keys: Keys, launch: Launch, request: Request) -> tuple[Job | None, Layout | None]:
    notes, script = keys.notes, _script(keys)
    layout = _degrees(keys)
    ranks = None if is_silent(launch) else ranks_of(launch, request)
    if ranks is not None and keys.of(k.FSDP) is False and not keys.has(k.CUT_SHARD):
        layout["dp"] = ranks  # replicas are as many as are started
    world = layout["tp"] * layout["cp"] * layout["dp"]
    if ranks not in (None, world):
        says = f"its mesh has {world} ranks and the launch {ranks}: change one"
        keys.problem("world_size", "illegal", says, k.SHARD if keys.has(k.SHARD) else k.CUT_SHARD)
        return None, None
    cluster = cluster_of(notes, launch, request, world)
    model = model_of(notes, request, script, PRICED)
    length = sequence_of(notes, request, script)
    micro, steps = keys.of(k.MICRO), keys.of(k.ACCUMULATED)
    batch = layout["dp"] * micro * steps
    if cluster is None or model is None or length is None or not batch_fits(notes, batch, length):
        return None, None
    wide, narrow = keys.of(k.COMPUTE) == "float32", keys.of(k.DTYPE) == "bfloat16"
    precision = ("tf32" if keys.of(k.TF32) else "fp32") if wide else "bf16"
    optimizer = _optimizer(keys, cluster.num_gpus)
    plain = narrow and not optimizer_of(optimizer).bare
    states = "bf16" if plain and (model.trained is None or _is_plain(keys, layout)) else "o0"
    training = {
        "global_batch_size": keys.entry(batch, k.ACCUMULATED),
        "precision": keys.entry(precision, k.COMPUTE),
        "state_precision": keys.entry(states, k.DTYPE),
        "optimizer": keys.entry(optimizer.text, k.OPTIM),
    }
    for name, entry in training.items():
        notes.note(f"training.{name}", entry)
    values = {name: entry.value for name, entry in training.items()}
    options = dict(_options(keys, layout))
    cut = layout["tp"] if model.moe and layout["ep"] == 1 else 1
    tiles = {"tiled_loss": "liger" in options, "etp": cut, "micro_batch_size": micro}
    recomputed = _recomputed(keys, model.num_hidden_layers)
    job = Job(
        model=model,
        training=TrainingSpec.model_validate({**values, "seq_length": length}),
        cluster=cluster,
        runtime=k.RUNTIME,
        options=RuntimeOptions.model_validate(options),
    )
    made = Layout.model_validate({**layout, **tiles, **recomputed})
    note_layout(notes, made, {name: keys.entry(None, *of) for name, of in WRITTEN_BY.items()})
    return job, made


WRITTEN_BY: Mapping[str, tuple[Option[int] | Option[bool], ...]] = {
    "tp": (k.TP,),
    "ep": (k.EP,),
    "cp": (k.CP,),
    "dp": (k.SHARD, k.CUT_SHARD),
    "dp_replicate": (k.REPLICATE, k.CUT_REPLICATE),
    "zero_stage": (k.RESHARDS, k.CUT_SHARD),
    "micro_batch_size": (k.MICRO,),
    "recompute": (k.CHECKPOINTING,),
    "recompute_num_layers": (k.EVERY,),
}
"""Keys that say a field of a layout."""


def _degrees(keys: Keys) -> dict[str, int]:
    """Degrees and what is sharded; replicas of a launch without a mesh are counted by its ranks."""
    cut = any(keys.has(one) for one in (k.TP, k.EP, k.CUT_SHARD, k.CUT_REPLICATE))
    fsdp = keys.of(k.FSDP)
    replicate, shard = (
        keys.of(one) for one in ((k.CUT_REPLICATE, k.CUT_SHARD) if cut else (k.REPLICATE, k.SHARD))
    )
    several = replicate * shard > 1
    stage = (3 if several else 0) if cut else (3 if keys.of(k.RESHARDS) else 2) if fsdp else 0
    return {
        "tp": keys.of(k.TP) if cut else 1,
        "ep": keys.of(k.EP) if cut else 1,
        "cp": keys.of(k.CP) if fsdp else 1,
        "dp": replicate * shard,
        "dp_replicate": replicate,
        "zero_stage": stage,
    }


def _recomputed(keys: Keys, layers: int) -> dict[str, object]:
    """All layers, or every so many."""
    if not keys.of(k.CHECKPOINTING):
        return {}
    every = keys.of(k.EVERY)
    some = {"recompute_method": "block", "recompute_num_layers": max(1, layers // every)}
    return {**FULL, **(some if keys.has(k.EVERY) else {})}


def _is_plain(keys: Keys, layout: Mapping[str, int]) -> bool:
    """Are adapters in bf16 with all of their states?"""
    return layout["zero_stage"] == 0 and keys.of(k.OPTIM) != k.ADAPTERS


def _optimizer(keys: Keys, num_gpus: int) -> OptimizerSpec:
    """Its name, with its rank; where one GPU updates by layer or by step."""
    word = keys.of(k.OPTIM)
    name = OPTIMIZERS.get(word.removesuffix(k.LAYERWISE))
    if name is None:
        says = f"optimizer {word[:60]} is priced as AdamW"
        keys.problem("optimizer", "unmodelled", says, k.OPTIM)
        return OptimizerSpec()
    texts = keys.of(k.SETTINGS).replace(" ", "").split(",")
    settings = dict(one.split("=", 1) for one in texts if "=" in one)
    if name == "apollo" and settings.get("scale_type") == "tensor":
        name = "apollo-mini"
    if name not in k.LOW_RANK:
        return OptimizerSpec(name=name)
    rank = settings.get("rank", "128")
    update = "step" if num_gpus == 1 and not word.endswith(k.LAYERWISE) else None
    number = int(rank) if rank.isdecimal() and 0 < len(rank) < 10 else 128
    ranked = {} if name == "apollo-mini" else {"rank": max(1, number)}
    return OptimizerSpec.model_validate({"name": name, "update": update, **ranked})


def _options(keys: Keys, layout: Mapping[str, int]) -> Iterator[tuple[str, object]]:
    size, plain = keys.of(k.BUCKET), layout["zero_stage"] == 0
    stated: tuple[tuple[str, object, Option[bool] | Option[str] | Option[int], bool], ...] = (
        ("bucket_mb", size, k.BUCKET, plain and size > 0),
        ("compile", True, k.COMPILE, keys.of(k.COMPILE)),
        ("liger", "0.6", k.LIGER, keys.of(k.LIGER)),
        ("fused_optimizer", False, k.OPTIM, keys.of(k.OPTIM) == k.LISTS),
        (
            "cp_comm_type",
            EXCHANGES.get(keys.of(k.EXCHANGE)),
            k.EXCHANGE,
            layout["cp"] != 1 and keys.of(k.EXCHANGE) == k.STRATEGIES["p2p"],
        ),
    )
    for name, value, option, on in stated:
        if on:
            keys.notes.note(f"options.{name}", keys.entry(value, option))
            yield name, value


TRANSFORMERS = Reader(k.RUNTIME, recognises, read)
