"""What DeepSpeed keeps in host memory or on drives: written, read, and what stops the engine.

Source: deepspeedai/DeepSpeed at the commit of `planner.runtimes.deepspeed`, below `deepspeed`:
`runtime/zero/offload_config.py`, `runtime/zero/stage3.py` (_configure_offloading,
_create_param_groups_fp16_flat_cpu_memory), `runtime/zero/stage_1_and_2.py` (which knows no drive),
`runtime/swap_tensor` and `runtime/activation_checkpointing/config.py`. Numbers of buffers and their
sizes are those that are priced, `costmodel.swap_buffers`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.swap_buffers import WEIGHT_BUFFERS, optimizer_buffers, weight_buffer_params
from trainplan.planner.launch import Argument, ConfigFile, RequiredVariable, UserVariable, switch
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.keys import Entry, Keys, Option, Written
from trainplan.planner.runtimes.training_script.read import CHECKPOINTINGS as RECOMPUTES
from trainplan.planner.runtimes.training_script.script import Script

DRIVE = "NVME_FOLDER"
FOLDERS = RequiredVariable(DRIVE, "a folder on the drives of every node, the same on all")
PATH = engine.FOLDER[engine.WEIGHTS].name.rpartition(".")[2]
AIO = {
    "block_size": 1048576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}
FILE = "offloaded_checkpoints.py"
SWITCH = "--offloaded_checkpoints"
MODULE = '''"""Inputs of recomputed layers wait in host memory. Written by `plan export`."""

import deepspeed


def offloaded_checkpoints(model, config):
    """The model of transformers that train.py loaded, by the JSON of the engine, `config`."""
    deepspeed.checkpointing.configure(None, deepspeed_config=config)
    model._set_gradient_checkpointing(True, deepspeed.checkpointing.checkpoint)
    model.config.use_cache = False
    return model
'''
"""Models of transformers recompute with the function they are given: that of torch unless told.

Source: huggingface/transformers `modeling_utils.py`, _set_gradient_checkpointing; DeepSpeed
`runtime/activation_checkpointing/checkpointing.py`, configure, checkpoint.
"""


def offload_keys(job: Job, layout: Layout) -> Written:
    """Keys that say what leaves the GPU."""
    offload = layout.offload
    written: Written = {}
    if offload.optimizer:
        written |= _optimizer_keys(job, layout)
    if offload.parameters:
        written |= _weight_keys(job, layout)
    if layout.zero_stage == 3 and written:
        written[engine.SUBGROUP] = engine.SUBGROUP.default
    return written


def _optimizer_keys(job: Job, layout: Layout) -> Written:
    one, tier = engine.OPTIMIZER_STATES, layout.offload.tier
    written: Written = {
        engine.DEVICE[one]: tier,
        engine.PINNED[one]: True,
        engine.RATIO: layout.offload.optimizer,
    }
    if tier == "cpu":
        return written
    buffers = int(optimizer_buffers(_updated(job.model, layout)))
    folder: Written = {engine.FOLDER[one]: DRIVE, engine.BUFFERS[one]: buffers}
    return {**written, **folder, engine.READS_AHEAD: True, engine.WRITES_BEHIND: True}


def _weight_keys(job: Job, layout: Layout) -> Written:
    one, tier = engine.WEIGHTS, layout.offload.parameters
    written: Written = {engine.DEVICE[one]: tier, engine.PINNED[one]: True}
    if tier == "cpu":
        return written
    size = int(weight_buffer_params(job.model, _shards(layout)))
    folder: Written = {engine.FOLDER[one]: DRIVE, engine.BUFFERS[one]: WEIGHT_BUFFERS}
    return {**written, **folder, engine.BUFFER_SIZE: size, engine.MAX_IN_CPU: 0}


def _shards(layout: Layout) -> FloatColumn:
    return np.array(layout.dp * layout.cp)


def _updated(model: ModelSpec, layout: Layout) -> FloatColumn:
    """Parameters that a rank updates."""
    return np.array(num_parameters(model) / (layout.tp * layout.dp * layout.cp))


def drive_keys(layout: Layout) -> Written:
    """How drives are read and written: the engine's own values, which ds_nvme_tune betters."""
    return (
        {f"{engine.DRIVES}.{name}": value for name, value in AIO.items()}
        if uses_drives(layout)
        else {}
    )


def checkpoint_keys(layout: Layout) -> Written:
    """Inputs of recomputed layers on the host."""
    return {engine.CHECKPOINTS: True} if layout.offload.checkpoints else {}


def uses_drives(layout: Layout) -> bool:
    """Is something on drives?"""
    return "nvme" in (layout.offload.tier, layout.offload.parameters)


def drive_variables(layout: Layout) -> tuple[RequiredVariable, ...]:
    """What the user says of the drives."""
    return (FOLDERS,) if uses_drives(layout) else ()


def filled_in(layout: Layout) -> tuple[tuple[str, UserVariable], ...]:
    """Keys of the file whose values only the user knows."""
    return ((PATH, UserVariable(DRIVE)),) if uses_drives(layout) else ()


def checkpoint_file(layout: Layout) -> tuple[ConfigFile, ...]:
    """The module that has the model recompute with the engine's own function."""
    return (ConfigFile(FILE, MODULE),) if layout.offload.checkpoints else ()


def recompute_switch(layout: Layout, usual: str) -> tuple[Argument, ...]:
    """The switch of the script by which its model recomputes."""
    flag = SWITCH if layout.offload.checkpoints else usual
    return (switch("recompute", flag),) if layout.recompute == "full" else ()


def offload_notes(layout: Layout) -> Iterator[str]:
    """What the user has to do, and what stands in the file by itself."""
    if uses_drives(layout):
        yield (
            f"{DRIVE} is written into the file as {PATH}; aio has the engine's own values: "
            "ds_nvme_tune finds better ones"
        )
    if layout.offload.checkpoints:
        yield (
            f"{SWITCH} has to reach {FILE}: train.py calls offloaded_checkpoints(model, config), "
            "and leaves gradient_checkpointing_enable() out, which would undo it"
        )


DEVICES = ("none", "cpu", "nvme")


def offload_of(keys: Keys, stage: int, script: Script) -> OffloadSpec:
    """What leaves the GPU."""
    optimizer, tier = _optimizer(keys, stage)
    offload = {
        "optimizer": optimizer,
        "tier": tier,
        "parameters": _parameters(keys, stage),
        "checkpoints": 1.0 if own_checkpoints(keys, script) else 0.0,
    }
    return OffloadSpec.model_validate(offload)


def own_checkpoints(keys: Keys, script: Script) -> bool:
    """Does the model recompute with the engine's function, which keeps inputs on the host?"""
    own, usual = script.switch(SWITCH.removeprefix("--")), script.switch(*RECOMPUTES)
    on = bool(own and own.value) and not (usual and usual.value)
    return on and keys.of(engine.CHECKPOINTS)


def check_checkpoints(keys: Keys, script: Script) -> Entry | None:
    """The switch by which layers are recomputed; problems with the file's section beside it."""
    usual, own = script.switch(*RECOMPUTES), script.switch(SWITCH.removeprefix("--"))
    on = [
        key
        for key, one in keys.entries.items()
        if key.startswith(f"{engine.CHECKPOINTING}.") and one.value
    ]
    if on and not own_checkpoints(keys, script):
        says = (
            f"{engine.CHECKPOINTING} sets up DeepSpeed's own function, which models of "
            "transformers do not call: use their gradient_checkpointing, or the module that `plan "
            f"export` writes with {SWITCH}"
        )
        keys.problem(engine.CHECKPOINTING, "ignored", says)
    return usual or own


def _device(keys: Keys, section: str) -> str:
    key = engine.DEVICE[section]
    device = keys.of(key)
    if device in DEVICES:
        return device
    says = f"{section.partition('.')[2]}.device = {device!r}: use none, cpu or nvme"
    keys.problem("offload_device", "illegal", says, key)
    return "none"


def _optimizer(keys: Keys, stage: int) -> tuple[float, str]:
    """Share of the optimizer off the GPU, and where it lies."""
    device = _device(keys, engine.OPTIMIZER_STATES)
    if device == "none":
        return 0.0, "cpu"
    if stage == 0:
        says = "nothing is sharded under stage 0, so nothing is offloaded: use stage 1 or more"
        keys.problem("offload_stage", "ignored", says, engine.DEVICE[engine.OPTIMIZER_STATES])
        return 0.0, "cpu"
    if device == "nvme" and stage < 3:
        says = "stages 1 and 2 keep the optimizer in host memory: raise the stage, or use cpu"
        keys.problem("offload_nvme", "ignored", says, engine.DEVICE[engine.OPTIMIZER_STATES])
        device = "cpu"
    ratio = keys.of(engine.RATIO)
    if ratio < 1 and stage < 3:
        says = f"offload_optimizer.ratio = {ratio} needs stage 3: raise the stage, or delete it"
        keys.problem("engine_offloads_shards", "illegal", says, engine.RATIO)
        return 1.0, device
    return ratio, device if ratio else "cpu"


def _parameters(keys: Keys, stage: int) -> str | None:
    device = _device(keys, engine.WEIGHTS)
    if device == "none":
        return None
    if stage != 3:
        says = "offload_param is read under stage 3 alone: raise the stage, or delete it"
        keys.problem("offload_param", "ignored", says, engine.DEVICE[engine.WEIGHTS])
        return None
    return device


def check_offload(keys: Keys, layout: Layout, model: ModelSpec) -> None:
    """What of the sections stops the engine, and what is priced otherwise."""
    for cause, key, says in _unlike(keys, layout):
        keys.problem(cause, "unmodelled", says, key)
    for cause, key, says in _stopping(keys, layout, model):
        keys.stops(cause, says, key)


def _sections(layout: Layout) -> Iterator[tuple[str, str]]:
    """Sections that move something, with where it lies."""
    if layout.offload.optimizer:
        yield engine.OPTIMIZER_STATES, layout.offload.tier
    if layout.offload.parameters:
        yield engine.WEIGHTS, layout.offload.parameters


def _unlike(keys: Keys, layout: Layout) -> Iterator[tuple[str, Option[Any], str]]:
    """Cause, key and sentence of what is not as it is priced."""
    for section, device in _sections(layout):
        if not keys.of(engine.PINNED[section]):
            says = "copies of pageable memory are priced as of pinned: leave pin_memory on"
            yield "offload_pageable", engine.PINNED[section], says
        if device == "nvme" and section == engine.OPTIMIZER_STATES:
            off = [one for one in (engine.READS_AHEAD, engine.WRITES_BEHIND) if not keys.of(one)]
            if off:
                names = " and ".join(one.name.rpartition(".")[2] for one in off)
                yield "offload_pipeline", off[0], f"{names} off is priced as on: set both"
        if device == "nvme" and section == engine.WEIGHTS and (most := keys.of(engine.MAX_IN_CPU)):
            says = (
                f"{most} parameters of a rank may stay in host memory (max_in_cpu), priced as on "
                "the drive: set 0"
            )
            yield "offload_max_in_cpu", engine.MAX_IN_CPU, says
    size, usual = keys.of(engine.SUBGROUP), engine.SUBGROUP.default
    if size != usual and layout.offload.tier == "nvme":
        says = f"subgroups of {size} parameters are priced as of {usual}: leave it out"
        yield "offload_subgroups", engine.SUBGROUP, says


def _stopping(
    keys: Keys, layout: Layout, model: ModelSpec
) -> Iterator[tuple[str, Option[Any], str]]:
    """Cause, key and sentence of what the engine refuses."""
    for section, device in _sections(layout):
        if device != "nvme":
            continue
        path = engine.FOLDER[section]
        if not keys.of(path):
            yield "offload_path", path, f"{section} is on nvme without nvme_path: name a folder"
        if section == engine.WEIGHTS:
            key, needed = engine.BUFFER_SIZE, int(weight_buffer_params(model, _shards(layout)))
            if keys.of(key) < needed and needed > key.default:
                says = f"a rank's share of the largest weight has {needed} parameters: raise {key}"
                yield "offload_buffer_size", key, says
            continue
        key, buffers = engine.BUFFERS[section], engine.BUFFERS[section].default
        if keys.of(engine.READS_AHEAD):
            buffers = int(optimizer_buffers(_updated(model, layout)))
        if keys.of(key) < buffers:
            says = f"the swapper runs out of buffers, it needs {buffers}: raise {key}"
            yield "offload_buffers", key, says
