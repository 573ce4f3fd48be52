"""Keys of a `ds_config.json`: their names, what the engine takes where one is missing, their file.

Source: deepspeedai/DeepSpeed, commit `COMMIT`, below `deepspeed`: `runtime/config.py` (a key twice
raises; top-level keys that it does not know it never reads), `runtime/config_utils.py`,
DeepSpeedConfigModel (sections refuse keys they do not know), `runtime/zero/config.py`,
`runtime/zero/offload_config.py` and `runtime/tensor_parallel/config.py`.
"""

import json
import re
from collections.abc import Iterator, Mapping

from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.swap_buffers import STATES, SUBGROUP_PARAMS, WEIGHT_BUFFER_PARAMS
from trainplan.planner.runtimes.exporter import recorded
from trainplan.planner.runtimes.keys import Entry, Keys, Notes, Option, exact, few
from trainplan.planner.shell import Place

RUNTIME = "deepspeed"
COMMIT = "edaa7221267243c7be7fb49c5d5f5c4fb97b4641"
"""DeepSpeed commit whose keys these are (0.19.6)."""
RECORDED = "deepspeed/options.json"

SEQUENCES, PARAMS = 1 << 40, 1 << 50
"""The most that a batch and a size may name."""
BATCH = Option("train_batch_size", 0, most=SEQUENCES)
MICRO = Option("train_micro_batch_size_per_gpu", 0, most=SEQUENCES)
STEPS = Option("gradient_accumulation_steps", 0, most=SEQUENCES)
CLIPPING = Option("gradient_clipping", 0.0)
OPTIMIZER, OPTIMIZER_PARAMS = Option("optimizer.type", "AdamW"), "optimizer.params"
UNTESTED_OPTIMIZER = Option("zero_allow_untested_optimizer", default=False)
ENABLED = {name: Option(f"{name}.enabled", default=False) for name in ("bf16", "fp16")}
MASTERS = Option("bf16.bf16_master_weights_and_grads", default=False)
MOMENTS = Option("bf16.bf16_optimizer_states", default=False)
GRADIENTS = Option("data_types.grad_accum_dtype", "")
MESSAGES = Option("communication_data_type", "")
ZERO, USUAL_BUCKET = "zero_optimization", RUNTIMES[RUNTIME].sharding.bucket_elements
STAGE = Option(f"{ZERO}.stage", 0, least=0, most=3)
OVERLAP = Option(f"{ZERO}.overlap_comm", default=False)
"""Its default is on under stage 3."""
HPZ = Option(f"{ZERO}.zero_hpz_partition_size", 1, least=0)
MICS = Option(f"{ZERO}.mics_shard_size", -1, least=-PARAMS, most=PARAMS)
BY_NODE = Option(f"{ZERO}.mics_hierarchical_params_gather", default=False)
QUANTISED = {
    name: Option(f"{ZERO}.zero_quantized_{word}", default=False)
    for name, word in (("weight_bits", "weights"), ("gradient_bits", "gradients"))
}
"""By the option of ours."""
BUCKET, GATHER_BUCKET = (
    Option(f"{ZERO}.{name}_bucket_size", USUAL_BUCKET, least=0, most=PARAMS)
    for name in ("reduce", "allgather")
)
SUBGROUP = Option(f"{ZERO}.sub_group_size", SUBGROUP_PARAMS, least=0, most=PARAMS)
TP = Option("tensor_parallel.autotp_size", 0, least=0)
TP_OVERLAP = Option("tensor_parallel.tp_overlap_comm", default=False)
SP = Option("sequence_parallel_size", 1)
SEQUENCE_MESSAGES = Option("seq_parallel_communication_data_type", "fp32")
OPTIMIZER_STATES, WEIGHTS = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
"""Sections of what leaves the GPU."""
DEVICE = {one: Option(f"{one}.device", "none") for one in (OPTIMIZER_STATES, WEIGHTS)}
PINNED = {one: Option(f"{one}.pin_memory", default=True) for one in (OPTIMIZER_STATES, WEIGHTS)}
FOLDER = {one: Option(f"{one}.nvme_path", "") for one in (OPTIMIZER_STATES, WEIGHTS)}
BUFFERS = {
    one: Option(f"{one}.buffer_count", STATES, least=0, most=PARAMS)
    for one in (OPTIMIZER_STATES, WEIGHTS)
}
RATIO = Option(f"{OPTIMIZER_STATES}.ratio", 1.0, least=0, most=1)
READS_AHEAD = Option(f"{OPTIMIZER_STATES}.pipeline_read", default=False)
WRITES_BEHIND = Option(f"{OPTIMIZER_STATES}.pipeline_write", default=False)
BUFFER_SIZE = Option(f"{WEIGHTS}.buffer_size", WEIGHT_BUFFER_PARAMS, least=0, most=PARAMS)
MAX_IN_CPU = Option(f"{WEIGHTS}.max_in_cpu", 1_000_000_000, least=0, most=PARAMS)
DRIVES = "aio"
CHECKPOINTING = "activation_checkpointing"
CHECKPOINTS = Option(f"{CHECKPOINTING}.cpu_checkpointing", default=False)

SECTIONS = (ZERO, OPTIMIZER_STATES, WEIGHTS, "tensor_parallel", *ENABLED)
"""Those that refuse keys."""
UNMODELLED: Mapping[str, str] = {
    f"{ZERO}.zero_quantized_nontrainable_weights": "frozen weights in 8 bits",
    f"{ZERO}.zeropp_loco_param": "what rounding lost of gradients, added to the next ones",
    f"{ZERO}.zenflow": "ZenFlow",
    f"{OPTIMIZER_STATES}.super_offload": "SuperOffload",
    "expert_parallel": "expert parallelism of the engine",
    "torch_autocast": "autocast of torch",
    "amp": "Apex",
    "compression_training": "compression",
    "data_efficiency": "data that change from step to step",
    "curriculum_learning": "sequences that grow in training",
    "sparse_attention": "sparse attention",
    "progressive_layer_drop": "layers that are dropped",
}
"""What is priced as if it were not there."""
OFF = (0, 1, -1)
"""Sizes and degrees that mean nothing."""


class DuplicateError(ValueError):
    """A key stands twice."""


def keys_of(notes: Notes, text: str, file: str) -> Keys | None:
    """Keys of a file; null, with a problem: the runtime takes none of it."""
    where = Place(file, None)
    try:
        config = json.loads(text, object_pairs_hook=_once)
        if isinstance(config, dict):
            return engine_keys(notes, config, file, text)
    except DuplicateError as error:
        says = f"{file}: {error} is there twice, which stops the engine: delete one"
        notes.problem("duplicate_key", "illegal", says, where)
        return None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else f"{error}"
        says = f"{file} is no plain JSON ({reason}): write it without comments and placeholders"
        notes.problem("unread_config", "unread", says, where)
        return None
    says = f"{file} holds no object of keys: write one"
    notes.problem("unread_config", "unread", says, where)
    return None


def engine_keys(notes: Notes, config: Mapping[str, object], file: str, text: str = "") -> Keys:
    """Keys of the engine's sections, each at its line of a text."""
    values = dict(_sections(config))
    lines = _lines(text, values)
    entries = {
        key: Entry(value, "stated", f"{key} = {json.dumps(value)}", Place(file, lines.get(key)))
        for key, value in values.items()
    }
    return Keys(notes, entries, parse=exact, filled_in="auto", file=file)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise DuplicateError(repr(name[:60]))
        values[name] = value
    return values


def _sections(config: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in config.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and value and (not before or key in SECTIONS):
            yield from _sections(value, f"{key}.")
        else:
            yield key, value


def _lines(text: str, values: Mapping[str, object]) -> dict[str, int]:
    """Line of each key: the first of its name behind that of the key before it."""
    lines: dict[str, int] = {}
    at = 0
    for key in values:
        name = json.dumps(key.rpartition(".")[2])
        if match := re.compile(re.escape(name) + r"\s*:").search(text, at):
            at = match.start()
            lines[key] = text.count("\n", 0, at) + 1
    return lines


def check_keys(keys: Keys) -> None:
    """What is refused, what is never read, and what is not priced."""
    known = {flag.removeprefix("--") for flag in recorded(RECORDED)}
    tops = {key.partition(".")[0]: key for key in reversed(keys.entries)}
    for top in few([one for one in reversed(tops) if one not in known]):
        says = f"{top} is no key of DeepSpeed, which never reads it: correct or delete it"
        keys.problem("unknown_key", "ignored", says, tops.get(top))
    for key, entry in keys.entries.items():
        section, _, last = key.rpartition(".")
        if section in SECTIONS and key not in known:
            says = f"{section} has no key {last}, which stops the engine: correct or delete it"
            keys.problem("unknown_key", "illegal", says, key)
        _check_price(keys, key, entry.value)


def _check_price(keys: Keys, key: str, value: object) -> None:
    top = key.partition(".")[0]
    name = key if key in UNMODELLED else top
    off = value in (None, False, "auto") if isinstance(value, (bool, str)) else value in OFF
    switch = keys.entries.get(f"{top}.enabled")
    if name in UNMODELLED and value and not off and (switch is None or switch.value):
        says = f"{name}: {UNMODELLED[name]} is not priced: the price is without"
        keys.problem("not_priced", "unmodelled", says, key)
