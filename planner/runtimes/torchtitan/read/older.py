"""Configs in TOML, which torchtitan read until it took Python modules: sequences, not tokens.

Keys are those of `torchtitan/config/job_config.py` and, before it, `config_manager.py`, in 2024 and
2025; a key that neither has is said and left out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence

from trainplan.costmodel.job import Precision
from trainplan.planner.runtimes.reading import Asked
from trainplan.planner.runtimes.torchtitan.read.command import Option, literal, options
from trainplan.planner.runtimes.torchtitan.read.model import ReadModel, model_of_flavour
from trainplan.planner.runtimes.torchtitan.read.source import Made
from trainplan.planner.runtimes.torchtitan.read.told import Config, Told
from trainplan.planner.shell import Place, Word

P, T = "parallelism", "training"
SAME = {
    f"{P}.data_parallel_replicate_degree": f"{P}.data_parallel_replicate_degree",
    f"{P}.data_parallel_shard_degree": f"{P}.data_parallel_shard_degree",
    f"{P}.fsdp_reshard_after_forward": f"{P}.fsdp_reshard_after_forward",
    f"{P}.tensor_parallel_degree": f"{P}.tensor_parallel_degree",
    f"{P}.disable_loss_parallel": "",
    f"{P}.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
    f"{P}.pipeline_parallel_degree": f"{P}.pipeline_parallel_degree",
    f"{P}.pipeline_parallel_schedule": f"{P}.pipeline_parallel_schedule",
    f"{P}.pipeline_parallel_schedule_csv": f"{P}.pipeline_parallel_schedule_csv",
    f"{P}.pipeline_parallel_layers_per_stage": f"{P}.pipeline_parallel_layers_per_stage",
    f"{P}.module_fqns_per_model_part": f"{P}.module_fqns_per_model_part",
    f"{P}.context_parallel_degree": f"{P}.context_parallel_degree",
    f"{P}.expert_parallel_degree": f"{P}.expert_parallel_degree",
    f"{T}.data_parallel_replicate_degree": f"{P}.data_parallel_replicate_degree",
    f"{T}.data_parallel_shard_degree": f"{P}.data_parallel_shard_degree",
    f"{T}.tensor_parallel_degree": f"{P}.tensor_parallel_degree",
    f"{T}.seq_len": f"{T}.max_context_length",
    f"{T}.enable_cpu_offload": f"{T}.enable_cpu_offload",
    f"{T}.mixed_precision_param": f"{T}.mixed_precision_param",
    f"{T}.compile": "compile.enable",
    "compile.enable": "compile.enable",
    "compile.components": "compile.components",
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
    config: Config, path: Word, asked: Asked, arguments: Sequence[Word]
) -> ReadModel | str:
    """Keys of a TOML file and of the command over it, as keys of today; and the model."""
    place = Place(path.text, None)
    config.problem("old_format", "unmodelled", DROPPED, place)
    text = asked.text_of(path.text)
    if text is None:
        config.problem(
            "unread_config", "unread", f"there is no {path.text} to read: give it", place
        )
        return f"{path.text} is not there"
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        says = f"{path.text} is no TOML: {str(error)[:80]}"
        config.problem("unread_config", "unread", says, place)
        return f"{path.text} is no TOML"
    told = _flat(tables, path.text, text) | _overrides(arguments)
    _translate(config, told)
    _batches(config, told)
    _checkpoint(config, told)
    return _model(config, told)


def _flat(tables: Mapping[str, object], file: str, text: str) -> dict[str, Told]:
    lines = _lines(text)
    found: dict[str, Told] = {}
    for section, table in tables.items():
        for key, value in table.items() if isinstance(table, Mapping) else ():
            name = f"{P if section == 'experimental' else section}.{key}"
            where = Place(file, lines.get((section, key)))
            found[name] = Told(value, f"{section}.{key} = {value!r}", where)
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


def _overrides(arguments: Sequence[Word]) -> dict[str, Told]:
    found: dict[str, Told] = {}
    for option in options(arguments):
        if isinstance(option, Option) and "." in option.name:
            value = True if option.value is None else literal(option.value.text)
            text = option.word.text if option.value is None else f"{option.word.text} {value}"
            found[option.name] = Told(value, text, option.word.place)
    return found


def _translate(config: Config, told: Mapping[str, Told]) -> None:
    for old, new in SAME.items():
        if old in told and new:
            config.told[new] = told[old]
    config.told["training.disable_cuda_graphs"] = Told(value=True, written="", place=None)
    if f"{P}.expert_tensor_parallel_degree" in told:
        says = "expert_tensor_parallel_degree is gone: experts are cut over tp where ep is 1"
        config.problem("expert_tensor_parallel", "unmodelled", says)
    key = f"{P}.pipeline_parallel_split_points"
    if key in told and told[key].value:
        says = "pipeline_parallel_split_points are not read: give module_fqns_per_model_part"
        config.problem("unread_value", "unread", says, told[key].place)
    if "compile.enable" in config.told and "compile.components" not in told:
        config.told["compile.components"] = Told(["model"], "compile.enable", None)


def _batches(config: Config, told: Mapping[str, Told]) -> None:
    """Sequences of a rank to tokens; a pipeline cuts them into micro batches."""
    found = next((told[name] for name in BATCHES if name in told), None)
    local = _whole(found, DEFAULT_BATCH)
    length = config.count("training.max_context_length")
    stages = config.count(f"{P}.pipeline_parallel_degree")
    micro = _whole(told.get(MICRO), 1) if stages > 1 else local
    if local % micro:
        says = f"{local} sequences of a rank are no multiple of the micro batch of {micro}"
        config.problem("micro_batch_divides_batch", "illegal", f"{says}: change one")
        micro = 1
    written, place = (found.written, found.place) if found else ("local_batch_size", None)
    tokens = Told(micro * length, written, place)
    config.told["training.num_tokens_per_microbatch_per_dp_rank"] = tokens
    config.told[f"{P}.num_pp_microbatches"] = Told(local // micro, written, place)
    whole = told.get(WHOLE)
    if whole is not None and isinstance(whole.value, int) and whole.value > 0:
        step = Told(whole.value * length, whole.written, whole.place)
        config.told["training.num_tokens_per_train_step"] = step


def _whole(told: Told | None, default: int) -> int:
    value = told.value if told else default
    return value if isinstance(value, int) and value > 0 else default


def _checkpoint(config: Config, told: Mapping[str, Told]) -> None:
    """Selective by operation, every n-th layer, or all.

    Source: torchtitan/distributed/activation_checkpoint.py of 2025.
    """
    mode = told.get("activation_checkpoint.mode")
    kind = mode.value if mode else "selective"
    option = told.get("activation_checkpoint.selective_ac_option")
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
    config.told["activation_checkpoint"] = Told(made, written, place)


def _model(config: Config, told: Mapping[str, Told]) -> ReadModel | str:
    name, flavour = told.get("model.name"), told.get("model.flavor")
    if name is None or flavour is None:
        return "[model] has no name and flavor"
    config.told["model_spec"] = Told(None, f"{name.written}, {flavour.written}", name.place)
    model = model_of_flavour(str(name.value), str(flavour.value))
    if model is None:
        return f"{name.value} {flavour.value} is not recorded"
    converters = told.get("model.converters")
    used = converters.value if converters and isinstance(converters.value, list) else []
    precision = next((CONVERTERS[one] for one in used if one in CONVERTERS), None)
    recipe = _fp8_recipe(told) if precision == "fp8" else None
    return ReadModel(model, precision, None, recipe)


def _fp8_recipe(told: Mapping[str, Told]) -> object:
    """One scale for a tensor unless another recipe is named.

    Source: torchtitan/config/job_config.py of 2025, Float8Linear.recipe_name, a section `float8`,
    from October on `quantize.linear.float8`.
    """
    linear = told.get("quantize.linear")
    nested = linear.value.get("float8") if linear and isinstance(linear.value, Mapping) else None
    named = [told[key].value for key in RECIPES if key in told]
    if isinstance(nested, Mapping) and "recipe_name" in nested:
        named.append(nested["recipe_name"])
    return named[-1] if named else "tensorwise"
