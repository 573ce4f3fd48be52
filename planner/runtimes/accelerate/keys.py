"""Keys of Accelerate from a YAML, from options of `accelerate launch`, or from variables it sets.

Source: huggingface/accelerate at the commit of `planner.runtimes.accelerate`, below
`src/accelerate`: `commands/config/config_args.py` (unknown keys of the file raise),
`commands/launch.py`, _validate_launch_command (options win; unknown keys of a section are set and
never read), and `utils/launch.py`, prepare_multi_gpu_env.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType

from trainplan.planner.runtimes.exporter import recorded
from trainplan.planner.runtimes.keys import Entry, Keys, Notes, Option, few, lines_of, yaml_mapping
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.runtimes.training_script.read import text_of
from trainplan.planner.runtimes.training_script.script import script_of
from trainplan.planner.shell import Launch, Place, Word, number

RUNTIME = "accelerate"
COMMIT = "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83"
"""Accelerate commit whose keys these are (1.15.0.dev0)."""
RECORDED = "accelerate/options.json"
LOCAL = "LOCAL_MACHINE"
FSDP, PARALLEL, DYNAMO, ENGINE = (
    f"{one}_config" for one in ("fsdp", "parallelism", "dynamo", "deepspeed")
)
SECTIONS = {FSDP: "fsdp_", PARALLEL: "parallelism_config_", DYNAMO: "dynamo_"}
"""Sections and the first letters of their keys."""
PLACE = Option("compute_environment", LOCAL)
KIND = Option("distributed_type", "NO")
PRECISION = Option("mixed_precision", "no")
NODES, RANKS = Option("num_machines", 1), Option("num_processes", 1)
STORED, PURE = "dtype", "pure_bf16"
NARROW = (STORED, "torch_dtype", PURE)
"""Type a script loads weights in. Source: huggingface/transformers
`examples/pytorch/language-modeling/run_clm.py`, ModelArguments; hiyouga/LLaMA-Factory
`hparams/finetuning_args.py`, pure_bf16."""
OPTIM, LISTS = "optim", "adamw_torch"
LIGER = "use_liger_kernel"
"""Option of the script, and AdamW on lists of tensors. Source: huggingface/transformers
`training_args.py`, OptimizerNames."""
WIDE = "autocast_adapter_dtype"
"""Switch of a trainer that makes adapters in fp32. Source: huggingface/peft `mapping_func.py`,
get_peft_model."""
VERSION = Option(f"{FSDP}.fsdp_version", 1)
RESHARDS = Option(f"{FSDP}.fsdp_reshard_after_forward", default=True)
POLICY = Option(RESHARDS.name, "FULL_SHARD")
"""As FSDP1 reads it."""
STRATEGY = Option(f"{FSDP}.fsdp_sharding_strategy", "")
ORIGINAL = Option(f"{FSDP}.fsdp_use_orig_params", default=True)
WRAPS = Option(f"{FSDP}.fsdp_auto_wrap_policy", "NO_WRAP")
OFFLOADS = Option(f"{FSDP}.fsdp_offload_params", default=False)
PARTS = Option(f"{FSDP}.fsdp_activation_checkpointing", default=False)
LOADS = Option(f"{FSDP}.fsdp_cpu_ram_efficient_loading", default=False)
SAVES = Option(f"{FSDP}.fsdp_state_dict_type", "")
REPLICATE, SHARD, TP, CP, SP = (
    Option(f"{PARALLEL}.parallelism_config_{name}_size", 1)
    for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
)
EXCHANGE = Option(f"{PARALLEL}.parallelism_config_cp_comm_strategy", "allgather")
BACKEND = Option(f"{DYNAMO}.dynamo_backend", "no")
REGIONAL = Option(f"{DYNAMO}.dynamo_use_regional_compilation", default=False)
ENGINE_FILE = Option(f"{ENGINE}.deepspeed_config_file", "")
STAGE = Option(f"{ENGINE}.zero_stage", 2, least=0, most=3)
DEVICES = {
    f"offload_{one}": Option(f"{ENGINE}.offload_{one}_device", "none")
    for one in ("optimizer", "param")
}
FOLDERS = {
    f"offload_{one}": Option(f"{ENGINE}.offload_{one}_nvme_path", "none")
    for one in ("optimizer", "param")
}
STEPS = Option(f"{ENGINE}.gradient_accumulation_steps", "auto")
"""Of the engine, in which the plugin fills in what a script has. Source: `utils/dataclasses.py`,
DeepSpeedPlugin."""
OF_ENGINE = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "zero3_init_flag"),
    *("zero3_save_16bit_model", "deepspeed_config_file"),
    *(f"{one}_{what}" for one in DEVICES for what in ("device", "nvme_path")),
)
"""Options of `accelerate launch` that stand in the section of the engine."""
ELSEWHERE = ("fp16", "dynamo_backend")
"""Keys of a file that are no options."""
KINDS = {
    "use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU",
    "use_megatron_lm": "MEGATRON_LM", "tpu": "XLA", "cpu": "MULTI_CPU",
}  # fmt: skip
"""Switches of `accelerate launch`, and the kind that each says."""
STRATEGIES: Mapping[str, str] = MappingProxyType({"all_gather": "allgather", "p2p": "alltoall"})
"""How keys and values travel. Source: torch `_attention.py`, _RotateMethod: an all-to-all that
permutes them round a ring."""
VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        PRECISION.name: "ACCELERATE_MIXED_PRECISION",
        **{
            one.name: one.name.partition(".")[2].upper()
            for one in (VERSION, RESHARDS, STRATEGY, ORIGINAL, WRAPS, OFFLOADS, PARTS, LOADS, SAVES,
                        REPLICATE, SHARD, TP, CP, EXCHANGE, SP)
        },
        BACKEND.name: "ACCELERATE_DYNAMO_BACKEND",
        REGIONAL.name: "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",
    }
)  # fmt: skip
"""Variable of a key. Source: utils/launch.py, prepare_multi_gpu_env."""
SWITCHES = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_PARALLELISM_CONFIG")


def keys_of(notes: Notes, launch: Launch, request: Request) -> Keys | None:
    """What a launch sets; null, with a problem: nothing can be read."""
    keys = Keys(notes)
    options = script_of(launch.starter_arguments).options
    path = launch.program if launch.alone else options.get("config_file", (None,))[0]
    if path is not None and not _of_file(keys, path, request):
        return None
    _of_options(keys, options)
    if not launch.alone and launch.starter != RUNTIME:
        _of_environment(keys, launch.environment)
    for key, word in ((NODES, launch.nodes), (RANKS, launch.ranks)):
        if word is not None and number(word) is not None and launch.starter == RUNTIME:
            keys.entries[key.name] = Entry(
                number(word), "stated", f"--{key} {word.text}", word.place
            )
    of_machine = path is None and launch.starter == RUNTIME and not keys.has(KIND)
    if of_machine and keys.has(RANKS):
        says = "without a --config_file that of the machine counts, if it has one: read as none"
        notes.problem("no_config", "unread", says, launch.program.place)
        keys.entries[KIND.name] = Entry("MULTI_GPU", "assumed", "more than one process")
    if not keys.entries:
        says = "the launch reads the default configuration of its machine: name a --config_file"
        notes.problem("no_config", "unread", says, launch.program.place)
        return None
    return keys


def _of_file(keys: Keys, path: Word, request: Request) -> bool:
    text = text_of(keys.notes, path, request)
    if text is None:
        return False
    config = yaml_mapping(keys.notes, text, path.text, "write `accelerate config` over it")
    if config is None:
        return False
    place = config.get(PLACE.name, LOCAL)
    if place != LOCAL:
        says = f"launches on {str(place)[:40]} are not read, only those on {LOCAL}"
        keys.notes.problem(PLACE.name, "unread", says, Place(path.text, None))
        return False
    _of_mapping(keys, config, path.text, text)
    return True


def _of_mapping(keys: Keys, config: Mapping[str, object], file: str, text: str) -> None:
    known = {flag.removeprefix("--") for flag in recorded(RECORDED)}
    lines = lines_of(text)
    certain = bool({PLACE.name, KIND.name} & {*config})  # else it may be of another program
    strange = [top for top in config if top not in known and top not in ELSEWHERE]
    for top in few(strange):
        says = f"{top[:60]} is no key of Accelerate, which stops it: correct or delete it"
        place = Place(file, lines.get(top))
        keys.notes.problem("unknown_key", "illegal" if certain else "unread", says, place)
    for top, value in config.items():
        if top in SECTIONS and isinstance(value, dict):
            inner = {_full(top, str(name)): name for name in value}
            for key in few([one for one in inner if one not in known]):
                name = str(inner.get(key, key))
                says = f"{top} has no key {name[:60]}, never read: correct or delete it"
                where = Place(file, lines.get(name))
                keys.notes.problem("unknown_key", "ignored", says, where)
            for key, name in inner.items():
                keys.entries[key] = _entry(key, value[name], Place(file, lines.get(str(name))))
        elif top == ENGINE and isinstance(value, dict):
            for name, one in value.items():
                key = f"{top}.{name}"
                keys.entries[key] = _entry(key, one, Place(file, lines.get(str(name))))
        elif top not in SECTIONS and (top in known or top in ELSEWHERE):
            keys.entries[top] = _entry(top, value, Place(file, lines.get(top)))


def _full(section: str, name: str) -> str:
    """Keys of FSDP and of the compiler may lack their first letters."""
    prefix = SECTIONS[section]
    lacks = section != PARALLEL and not name.startswith(prefix.rstrip("_"))
    return f"{section}.{prefix if lacks else ''}{name}"


def _entry(key: str, value: object, place: Place) -> Entry:
    """A plain value; lists and mappings, which may hold themselves, are never looked into."""
    plain = value if isinstance(value, (str, int, float, bool)) or value is None else "..."
    return Entry(plain, "stated", f"{key}: {json.dumps(plain)[:60]}", place)


def _of_options(keys: Keys, options: Mapping[str, tuple[Word | None, Word]]) -> None:
    for name, (value, word) in options.items():
        section = next((s for s, prefix in SECTIONS.items() if name.startswith(prefix)), None)
        section = ENGINE if name in OF_ENGINE else section
        if section is None and name not in (PRECISION.name, *KINDS):
            continue
        key = name if section is None else f"{section}.{name}"
        text = "true" if value is None else value.text
        if value is not None and value.unresolved:
            says = f"--{name} depends on {', '.join(value.unresolved)}: give it"
            keys.notes.problem("unread_value", "unread", says, word.place)
        elif key in KINDS:
            keys.entries[KIND.name] = Entry(KINDS[key], "stated", f"--{key}", word.place)
        else:
            keys.entries[key] = Entry(text, "stated", f"--{name} {text}", word.place)


def _of_environment(keys: Keys, environment: Mapping[str, Word]) -> None:
    """Variables that a script sets for torchrun."""
    names = {variable: key for key, variable in VARIABLES.items()}
    names[SWITCHES[0]] = KIND.name
    for variable, key in names.items():
        if variable in environment:
            word = environment[variable]
            value = "FSDP" if key == KIND.name else word.text
            keys.entries[key] = Entry(value, "stated", f"{variable}={word.text}", word.place)
