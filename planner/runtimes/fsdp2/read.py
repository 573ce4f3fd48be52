"""fsdp2: the module that `plan export` writes, whose settings stand at its top; it is not run."""

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from trainplan.costmodel.architecture import ModelSpec, RopeScaling
from trainplan.costmodel.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.fsdp2.write import MODULE, SIZES, TYPES, VERSION
from trainplan.planner.runtimes.keys import Entry, Keys, Notes, Option, exact
from trainplan.planner.runtimes.megatron_lm.read.vocabulary import like
from trainplan.planner.runtimes.ranks import is_silent, ranks_of
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.runtimes.training_script.read import (
    FULL,
    batch_fits,
    cluster_of,
    note_layout,
    text_of,
)
from trainplan.planner.shell import Launch, Place, Word

FILE = f"{MODULE}.py"
COUNTS = {
    name: Option(name, 0)
    for name in (
        "SEQ_LENGTH",
        "MICRO_BATCH_SIZE",
        "MICRO_BATCHES",
        "DP_REPLICATE",
        "DP_SHARD",
        "TP",
    )
}
SEQUENCE_PARALLEL = Option("SEQUENCE_PARALLEL", default=False)
RESHARDS, EVERY = (
    Option("RESHARD_AFTER_FORWARD", default=False),
    Option("EVERY_MICRO_BATCH", default=False),
)
RECOMPUTED, COMPILE = Option("RECOMPUTED_LAYERS", 0, least=0), Option("COMPILE", default=False)
PRODUCTS, STATES = Option("PARAM_DTYPE", "None"), Option("DTYPE", "torch.float32")
SCALING = "LLAMA3_SCALING"


def recognises(launch: Launch) -> bool:
    """By the module's name."""
    return PurePosixPath(launch.program.text).name in (MODULE, FILE)


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout that the settings say."""
    notes = Notes(problems=list(launch.problems))
    place = launch.program.place
    path = launch.program if launch.alone else Word(FILE, place)
    text = text_of(notes, path, request)
    keys = None if text is None else _settings(notes, text, path.text)
    job, layout = (None, None) if keys is None else _read(keys, launch, request)
    found = (tuple(notes.fields), tuple(notes.problems))
    return Reading("fsdp2", f"PyTorch {VERSION}", job, layout, *found)


def _settings(notes: Notes, text: str, file: str) -> Keys | None:
    """Assignments of constants at the top of the module; null, with a problem: some are missing."""
    keys = Keys(notes, parse=exact, file=file)
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = []
    for one in body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            name, written = one.targets[0].id, ast.unparse(one.value)[:60]
            entry = Entry(
                _value(one.value), "stated", f"{name} = {written}", Place(file, one.lineno)
            )
            keys.entries[name] = entry
    wanted = (*COUNTS, *(name.upper() for name in SIZES), PRODUCTS.name)
    missing = [name for name in wanted if name not in keys.entries]
    if missing:
        says = f"{file} does not set {', '.join(missing)[:120]}: export the plan again"
        notes.problem("unread_config", "unread", says, Place(file, None))
        return None
    return keys


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.unparse(node)


def _read(keys: Keys, launch: Launch, request: Request) -> tuple[Job | None, Layout | None]:
    notes = keys.notes
    length, micro, steps, replicate, shard, tp = (keys.of(one) for one in COUNTS.values())
    dp, ranks = replicate * shard, None if is_silent(launch) else ranks_of(launch, request)
    if not min(length, micro, steps, dp, tp):
        return None, None
    if ranks not in (None, dp * tp):
        says = f"DP_REPLICATE {replicate} * DP_SHARD {shard} * TP {tp} is not the {ranks} ranks"
        keys.problem("world_size", "illegal", f"{says}: change one", COUNTS["DP_SHARD"])
        return None, None
    cluster, model = cluster_of(notes, launch, request, dp * tp), _model(keys)
    batch = dp * micro * steps
    if cluster is None or model is None or not batch_fits(notes, batch, length):
        return None, None
    training = {
        "seq_length": keys.entry(length, COUNTS["SEQ_LENGTH"]),
        "global_batch_size": keys.entry(batch, COUNTS["MICRO_BATCHES"]),
        "precision": keys.entry(_precision(keys), PRODUCTS),
        "state_precision": keys.entry("bf16" if "bfloat16" in keys.of(STATES) else "o0", STATES),
    }
    for name, entry in training.items():
        notes.note(f"training.{name}", entry)
    compiled = {"compile": True} if keys.of(COMPILE) else {}
    for name, value in compiled.items():
        notes.note(f"options.{name}", keys.entry(value, COMPILE))
    job = Job(
        model=model,
        training=TrainingSpec.model_validate({k: one.value for k, one in training.items()}),
        cluster=cluster,
        runtime="fsdp2",
        options=RuntimeOptions.model_validate(compiled),
    )
    return job, _layout(keys, model)


def _precision(keys: Keys) -> str:
    words = {written.removeprefix("torch."): name for name, written in TYPES.items()}
    return words.get(str(keys.raw(PRODUCTS)).removeprefix("torch."), "bf16")


def _model(keys: Keys) -> ModelSpec | None:
    """The preset of this shape, or a model without a name."""
    sizes = {name: keys.entries[name.upper()].value for name in SIZES}
    scaling = keys.entries.get(SCALING, Entry(None, "default")).value
    if isinstance(scaling, tuple) and len(scaling) == 4:
        names = ("factor", "low_freq_factor", "high_freq_factor")
        limits: dict[str, Any] = dict(zip(names, scaling, strict=False))
        length = scaling[3]
        sizes["rope_scaling"] = RopeScaling(
            rope_type="llama3", original_max_position_embeddings=length, **limits
        )
    longest = {"max_position_embeddings": keys.of(COUNTS["SEQ_LENGTH"])}
    model = ModelSpec.model_validate({**sizes, **longest})
    model = next(like(model, vocabulary=True), model)
    written = keys.entries["NUM_HIDDEN_LAYERS"]
    keys.notes.note("model.name", written._replace(value=model.name))
    return model


def _layout(keys: Keys, model: ModelSpec) -> Layout:
    replicate, shard = keys.of(COUNTS["DP_REPLICATE"]), keys.of(COUNTS["DP_SHARD"])
    whole, layers = shard == 1, keys.of(RECOMPUTED)
    stage = 0 if whole else 3 if keys.of(RESHARDS) else 2 if keys.of(EVERY) else 1
    some = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": layers}
    recomputed: Mapping[str, object] = {} if not layers else some
    layout = Layout.model_validate(
        {
            "tp": keys.of(COUNTS["TP"]),
            "sequence_parallel": keys.of(SEQUENCE_PARALLEL),
            "dp": replicate * shard,
            "dp_replicate": 1 if whole else replicate,
            "zero_stage": stage,
            "micro_batch_size": keys.of(COUNTS["MICRO_BATCH_SIZE"]),
            **(FULL if layers == model.num_hidden_layers else recomputed),
        }
    )
    entries = {
        "tp": keys.entry(None, COUNTS["TP"]),
        "sequence_parallel": keys.entry(None, SEQUENCE_PARALLEL),
        "dp": keys.entry(None, COUNTS["DP_SHARD"]),
        "dp_replicate": keys.entry(None, COUNTS["DP_REPLICATE"]),
        "zero_stage": keys.entry(None, RESHARDS),
        "micro_batch_size": keys.entry(None, COUNTS["MICRO_BATCH_SIZE"]),
        "recompute": keys.entry(None, RECOMPUTED),
    }
    note_layout(keys.notes, layout, entries)
    return layout


FSDP2 = Reader("fsdp2", recognises, read)
