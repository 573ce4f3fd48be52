"""Configs in TOML, which torchtitan read until it took Python modules: sequences, not tokens.

Keys are those of `torchtitan/config/job_config.py` and, before it, `config_manager.py`, in 2024 and
2025; a key that neither has is said and left out.
"""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Precision
from trainplan.costmodel.presets import preset_names
from trainplan.planner.runtimes.keys import Entry
from trainplan.planner.runtimes.keys import Option as Key
from trainplan.planner.runtimes.python_source import Made
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.read.command import Option, literal, options
from trainplan.planner.runtimes.torchtitan.read.config import Config
from trainplan.planner.runtimes.torchtitan.read.model import ReadModel, as_preset, model_of_flavour
from trainplan.planner.shell import Place, Word

P, T = "parallelism", "training"
SAME: Mapping[str, Key[Any]] = {
    **{
        one.name: one
        for one in (
            *(key.REPLICATE, key.SHARD, key.POLICY, key.TP, key.PP, key.CP, key.EP),
            *(key.SCHEDULE, key.SCHEDULE_CSV, key.PER_STAGE, key.MODULES),
            *(key.OFFLOADS, key.PRECISION, key.STORED, key.COMPILE, key.COMPONENTS),
        )
    },
    f"{P}.enable_async_tensor_parallel": key.ASYNC_TP,
    f"{T}.data_parallel_replicate_degree": key.REPLICATE,
    f"{T}.data_parallel_shard_degree": key.SHARD,
    f"{T}.tensor_parallel_degree": key.TP,
    f"{T}.seq_len": key.LENGTH,
    f"{T}.compile": key.COMPILE,
}
"""Keys of today for those of then; `experimental` held those of the pipeline once."""
BATCHES = (f"{T}.local_batch_size", f"{T}.batch_size")
WHOLE, MICRO = f"{T}.global_batch_size", f"{P}.pipeline_parallel_microbatch_size"
DEFAULT_BATCH = 8
CONVERTERS: Mapping[str, Precision] = {
    "float8": "fp8",
    "mx": "mxfp8",
    "quantize.linear.float8": "fp8",
    "quantize.linear.mx": "mxfp8",
}
RECIPES = ("float8.recipe_name", "quantize.linear.float8.recipe_name")
RELEASE = "2025, with TOML"
DROPPED = (
    "torchtitan of today no longer reads TOML: keys and rules are those of a release that did; "
    "`plan export` writes today's form, a Python module"
)


def read_toml(
    config: Config, path: Word, request: Request, arguments: Sequence[Word]
) -> ReadModel | str:
    """Keys of a TOML file and of the command over it, as keys of today; and the model."""
    place = Place(path.text, None)
    config.notes.problem("old_format", "unmodelled", DROPPED, place)
    text = request.text_of(path.text)
    if text is None:
        config.notes.problem(
            "unread_config", "unread", f"there is no {path.text} to read: give it", place
        )
        return f"{path.text} is not there"
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        says = f"{path.text} is no TOML: {str(error)[:80]}"
        config.notes.problem("unread_config", "unread", says, place)
        return f"{path.text} is no TOML"
    entries = _flat(tables, path.text, text) | _overrides(arguments)
    _translate(config, entries)
    _batches(config, entries)
    _checkpoint(config, entries)
    return _model(config, entries)


def _flat(tables: Mapping[str, object], file: str, text: str) -> dict[str, Entry]:
    lines = _lines(text)
    found: dict[str, Entry] = {}
    for section, table in tables.items():
        for option, value in table.items() if isinstance(table, Mapping) else ():
            name = f"{P if section == 'experimental' else section}.{option}"
            where = Place(file, lines.get((section, option)))
            found[name] = Entry(value, "stated", f"{section}.{option} = {value!r}", where)
    return found


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Where each key of a table stands."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if bare.startswith("["):
            section = bare.split("]", 1)[0].strip("[ ")
        elif "=" in bare and not bare.startswith("#"):
            found.setdefault((section, bare.split("=", 1)[0].strip().strip('"')), number)
    return found


def _overrides(arguments: Sequence[Word]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for option in options(arguments):
        if isinstance(option, Option) and "." in option.name:
            value = True if option.value is None else literal(option.value.text)
            text = option.word.text if option.value is None else f"{option.word.text} {value}"
            found[option.name] = Entry(value, "stated", text, option.word.place)
    return found


def _translate(config: Config, entries: Mapping[str, Entry]) -> None:
    for old, new in SAME.items():
        if old in entries:
            config.entries[new.name] = entries[old]
    config.entries[key.NO_GRAPHS.name] = Entry(value=True, origin="stated")
    if f"{P}.expert_tensor_parallel_degree" in entries:
        says = "expert_tensor_parallel_degree is gone: experts are cut over tp where ep is 1"
        config.problem("expert_tensor_parallel", "unmodelled", says)
    split = entries.get(f"{P}.pipeline_parallel_split_points")
    if split and split.value:
        says = "pipeline_parallel_split_points are not read: give module_fqns_per_model_part"
        config.notes.problem("unread_value", "unread", says, split.place)
    if config.has(key.COMPILE) and key.COMPONENTS.name not in entries:
        config.entries[key.COMPONENTS.name] = Entry(["model"], "stated", key.COMPILE.name)


def _batches(config: Config, entries: Mapping[str, Entry]) -> None:
    """Sequences of a rank to tokens; a pipeline cuts them into micro batches."""
    found = next((entries[name] for name in BATCHES if name in entries), None)
    local = _whole(found, DEFAULT_BATCH)
    length = config.degree(key.LENGTH)
    stages = config.degree(key.PP)
    micro = _whole(entries.get(MICRO), 1) if stages > 1 else local
    if local % micro:
        says = f"{local} sequences of a rank are no multiple of the micro batch of {micro}"
        config.problem("micro_batch_divides_batch", "illegal", f"{says}: change one")
        micro = 1
    written, place = (found.written, found.place) if found else ("local_batch_size", None)
    config.entries[key.TOKENS.name] = Entry(micro * length, "stated", written, place)
    config.entries[key.IN_PIPE.name] = Entry(local // micro, "stated", written, place)
    whole = entries.get(WHOLE)
    if whole is not None and isinstance(whole.value, int) and whole.value > 0:
        config.entries[key.STEP.name] = whole._replace(value=whole.value * length)


def _whole(entries: Entry | None, default: int) -> int:
    value = entries.value if entries else default
    return value if isinstance(value, int) and value > 0 else default


def _checkpoint(config: Config, entries: Mapping[str, Entry]) -> None:
    """Selective by operation, every n-th layer, or all.

    Source: torchtitan/distributed/activation_checkpoint.py of 2025.
    """
    mode = entries.get("activation_checkpoint.mode")
    kind = mode.value if mode else "selective"
    option = entries.get("activation_checkpoint.selective_ac_option")
    way = option.value if option else "2"
    made: Made | None = Made("FullAC.Config", 0)
    if kind == "none":
        made = None
    elif kind == "selective" and way == "op":
        made = Made("SelectiveAC.Config", 0)
    elif kind == "selective":
        every = int(way) if isinstance(way, int) or (isinstance(way, str) and way.isdigit()) else 0
        made = Made("EveryKth.Config", 0, {"every": every})
    written = mode.written if mode else "activation_checkpoint.mode"
    place = mode.place if mode else None
    config.entries[key.CHECKPOINT] = Entry(made, "stated", written, place)


def _model(config: Config, entries: Mapping[str, Entry]) -> ReadModel | str:
    name, flavour = entries.get("model.name"), entries.get("model.flavor")
    if name is None or flavour is None:
        return "[model] has no name and flavor"
    config.entries[key.MODEL] = name._replace(
        value=None, written=f"{name.written}, {flavour.written}"
    )
    model = model_of_flavour(str(name.value), str(flavour.value))
    if model is None:
        return f"{name.value} {flavour.value} is not recorded"
    converters = entries.get("model.converters")
    used = converters.value if converters and isinstance(converters.value, list) else []
    precision = next((CONVERTERS[one] for one in used if one in CONVERTERS), None)
    recipe = _fp8_recipe(entries) if precision == "fp8" else None
    return ReadModel(_of_then(model, config.degree(key.LENGTH)), precision, None, recipe)


UNSCALED = 8192
"""Positions of Llama 3, whose rotations were not scaled before `RoPEScalingArgs` of late 2025."""


def _of_then(model: ModelSpec, length: int) -> ModelSpec:
    """Llama 3 where its sequences are no longer than its own, else Llama 3.1."""
    plain = {"rope_scaling": None, "max_position_embeddings": UNSCALED}
    then = as_preset(model.model_copy(update=plain))
    return then if length <= UNSCALED and then.name in preset_names() else model


def _fp8_recipe(entries: Mapping[str, Entry]) -> object:
    """One scale for a tensor unless another recipe is named.

    Source: torchtitan/config/job_config.py of 2025, Float8Linear.recipe_name, a section `float8`,
    from October on `quantize.linear.float8`.
    """
    linear = entries.get("quantize.linear")
    nested = linear.value.get("float8") if linear and isinstance(linear.value, Mapping) else None
    named = [entries[recipe].value for recipe in RECIPES if recipe in entries]
    if isinstance(nested, Mapping) and "recipe_name" in nested:
        named.append(nested["recipe_name"])
    return named[-1] if named else "tensorwise"
