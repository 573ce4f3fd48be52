"""What a `ds_config.json` keeps in host memory or on drives, and what stops the engine there.

Source: deepspeedai/DeepSpeed at the commit of `planner.runtimes.deepspeed`, below `deepspeed`:
`runtime/zero/offload_config.py`, `runtime/zero/stage3.py` (_configure_offloading,
_create_param_groups_fp16_flat_cpu_memory), `runtime/zero/stage_1_and_2.py` (which knows no drive),
and `runtime/swap_tensor`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.memory.swap_buffers import (
    STATES,
    SUBGROUP_PARAMS,
    WEIGHT_BUFFER_PARAMS,
    optimizer_buffers,
    weight_buffer_params,
)
from trainplan.costmodel.model.params import num_parameters
from trainplan.planner.runtimes.deepspeed.read_json import OFFLOAD, Keys
from trainplan.planner.runtimes.deepspeed.write_offload import SWITCH
from trainplan.planner.runtimes.training_script.read import CHECKPOINTING, Said, Script

PARAM = "zero_optimization.offload_param"
SUBGROUP = "zero_optimization.sub_group_size"
SECTION = "activation_checkpointing"
CHECKPOINTS = f"{SECTION}.cpu_checkpointing"
DEVICES = ("none", "cpu", "nvme")
MOST = 1 << 50
"""Parameters that a size may name."""
MOST_IN_CPU = 1_000_000_000
"""Source: `runtime/zero/offload_config.py`, default of max_in_cpu."""


def offload_of(keys: Keys, stage: int, script: Script) -> OffloadSpec:
    """What leaves the GPU."""
    optimizer, tier = _optimizer(keys, stage)
    told = {
        "optimizer": optimizer,
        "tier": tier,
        "parameters": _parameters(keys, stage),
        "checkpoints": 1.0 if own_checkpoints(keys, script) else 0.0,
    }
    return OffloadSpec.model_validate(told)


def own_checkpoints(keys: Keys, script: Script) -> bool:
    """Does the model recompute with the engine's function, which keeps inputs on the host?"""
    own, usual = script.switch(SWITCH.removeprefix("--")), script.switch(CHECKPOINTING)
    on = bool(own and own.value) and not (usual and usual.value)
    return on and keys.flag(CHECKPOINTS, default=False)


def check_checkpoints(keys: Keys, script: Script) -> Said | None:
    """The switch by which layers are recomputed; problems with the file's section beside it."""
    usual, own = script.switch(CHECKPOINTING), script.switch(SWITCH.removeprefix("--"))
    on = [key for key, value in keys.told.items() if key.startswith(f"{SECTION}.") and value]
    if on and not own_checkpoints(keys, script):
        says = (
            f"{SECTION} sets up DeepSpeed's own function, which models of transformers do not "
            "call: use their gradient_checkpointing, or the module that `plan export` writes with "
            f"{SWITCH}"
        )
        keys.problem(SECTION, "ignored", says)
    return usual or own


def _device(keys: Keys, section: str) -> str:
    key = f"{section}.device"
    device = keys.text(key, "none")
    if device in DEVICES:
        return device
    says = f"{section.partition('.')[2]}.device = {device!r}: use none, cpu or nvme"
    keys.problem("offload_device", "illegal", says, key)
    return "none"


def _optimizer(keys: Keys, stage: int) -> tuple[float, str]:
    """Share of the optimizer off the GPU, and where it lies."""
    key, device = f"{OFFLOAD}.ratio", _device(keys, OFFLOAD)
    if device == "none":
        return 0.0, "cpu"
    if stage == 0:
        says = "nothing is sharded under stage 0, so nothing is offloaded: use stage 1 or more"
        keys.problem("offload_stage", "ignored", says, f"{OFFLOAD}.device")
        return 0.0, "cpu"
    if device == "nvme" and stage < 3:
        says = "stages 1 and 2 keep the optimizer in host memory: raise the stage, or use cpu"
        keys.problem("offload_nvme", "ignored", says, f"{OFFLOAD}.device")
        device = "cpu"
    ratio = keys.share(key, 1.0)
    if ratio < 1 and stage < 3:
        says = f"offload_optimizer.ratio = {ratio} needs stage 3: raise the stage, or delete it"
        keys.problem("engine_offloads_shards", "illegal", says, key)
        return 1.0, device
    return ratio, device if ratio else "cpu"


def _parameters(keys: Keys, stage: int) -> str | None:
    device = _device(keys, PARAM)
    if device == "none":
        return None
    if stage != 3:
        says = "offload_param is read under stage 3 alone: raise the stage, or delete it"
        keys.problem("offload_param", "ignored", says, f"{PARAM}.device")
        return None
    return device


def check_offload(keys: Keys, layout: Layout, model: ModelSpec) -> None:
    """What of the sections stops the engine, and what is priced otherwise."""
    for cause, key, says in _unlike(keys, layout):
        keys.problem(cause, "unmodelled", says, key)
    for cause, key, says in _stopping(keys, layout, model):
        keys.problem(cause, "illegal", says, key)


def _sections(layout: Layout) -> Iterator[tuple[str, str]]:
    """Sections that move something, with where it lies."""
    if layout.offload.optimizer:
        yield OFFLOAD, layout.offload.tier
    if layout.offload.parameters:
        yield PARAM, layout.offload.parameters


def _unlike(keys: Keys, layout: Layout) -> Iterator[tuple[str, str, str]]:
    """Cause, key and sentence of what is not as it is priced."""
    for section, device in _sections(layout):
        if not keys.flag(f"{section}.pin_memory", default=True):
            says = "copies of pageable memory are priced as of pinned: leave pin_memory on"
            yield "offload_pageable", f"{section}.pin_memory", says
        if device == "nvme" and section == OFFLOAD:
            off = [f"pipeline_{one}" for one in ("read", "write")]
            off = [one for one in off if not keys.flag(f"{OFFLOAD}.{one}", default=False)]
            if off:
                says = f"{' and '.join(off)} off is priced as on: set both"
                yield "offload_pipeline", f"{OFFLOAD}.{off[0]}", says
        if device == "nvme" and section == PARAM:
            key = f"{PARAM}.max_in_cpu"
            if most := keys.count(key, MOST_IN_CPU, least=0, most=MOST):
                says = (
                    f"{most} parameters of a rank may stay in host memory (max_in_cpu), priced as "
                    "on the drive: set 0"
                )
                yield "offload_max_in_cpu", key, says
    size = keys.count(SUBGROUP, SUBGROUP_PARAMS, least=0, most=MOST)
    if size != SUBGROUP_PARAMS and layout.offload.tier == "nvme":
        says = f"subgroups of {size} parameters are priced as of {SUBGROUP_PARAMS}: leave it out"
        yield "offload_subgroups", SUBGROUP, says


def _stopping(keys: Keys, layout: Layout, model: ModelSpec) -> Iterator[tuple[str, str, str]]:
    """Cause, key and sentence of what the engine refuses."""
    shards = layout.dp * layout.cp
    for section, device in _sections(layout):
        if device != "nvme":
            continue
        path = f"{section}.nvme_path"
        if not keys.text(path, ""):
            yield "offload_path", path, f"{section} is on nvme without nvme_path: name a folder"
        if section == PARAM:
            key, needed = f"{PARAM}.buffer_size", int(weight_buffer_params(model, np.array(shards)))
            size = keys.count(key, WEIGHT_BUFFER_PARAMS, least=0, most=MOST)
            if size < needed and needed > WEIGHT_BUFFER_PARAMS:
                says = f"a rank's share of the largest weight has {needed} parameters: raise {key}"
                yield "offload_buffer_size", key, says
            continue
        key = f"{OFFLOAD}.buffer_count"
        updated = np.array(num_parameters(model) / (layout.tp * shards))
        pipelined = keys.flag(f"{OFFLOAD}.pipeline_read", default=False)
        buffers = int(optimizer_buffers(updated)) if pipelined else STATES
        if keys.count(key, STATES, least=0, most=MOST) < buffers:
            says = f"the swapper runs out of buffers, it needs {buffers}: raise {key}"
            yield "offload_buffers", key, says
