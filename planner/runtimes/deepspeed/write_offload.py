"""What DeepSpeed keeps in host memory or on drives, as sections of its JSON.

Source of the keys: deepspeedai/DeepSpeed at the commit of `planner.runtimes.deepspeed`,
`deepspeed/runtime/zero/offload_config.py`, `runtime/zero/config.py`, `runtime/swap_tensor/
constants.py` and `runtime/activation_checkpointing/config.py`. Numbers of buffers and their sizes
are those that are priced, `costmodel.memory.swap_buffers`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.memory.swap_buffers import (
    SUBGROUP_PARAMS,
    WEIGHT_BUFFERS,
    optimizer_buffers,
    weight_buffer_params,
)
from trainplan.costmodel.model.params import num_parameters
from trainplan.planner.runtimes.config import (
    Argument,
    ConfigFile,
    RequiredVariable,
    UserVariable,
    switch,
)

DRIVE = "NVME_FOLDER"
DRIVES = RequiredVariable(DRIVE, "a folder on the drives of every node, the same on all")
PATH_KEY = "nvme_path"
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


def offload_sections(job: Job, layout: Layout) -> dict[str, object]:
    """Keys of `zero_optimization` that say what leaves the GPU."""
    offload, told = layout.offload, dict[str, object]()
    if offload.optimizer:
        told["offload_optimizer"] = _optimizer(job, layout)
    if offload.parameters:
        told["offload_param"] = _parameters(job, layout)
    if layout.zero_stage == 3 and told:
        told["sub_group_size"] = SUBGROUP_PARAMS
    return told


def _optimizer(job: Job, layout: Layout) -> dict[str, object]:
    share = layout.offload.optimizer
    told: dict[str, object] = {"device": layout.offload.tier, "pin_memory": True, "ratio": share}
    if layout.offload.tier == "cpu":
        return told
    updated = np.array(num_parameters(job.model) / (layout.tp * _shards(layout)))
    buffers = int(optimizer_buffers(updated))
    pipeline = {"pipeline_read": True, "pipeline_write": True}
    return {**told, PATH_KEY: DRIVE, "buffer_count": buffers, **pipeline}


def _parameters(job: Job, layout: Layout) -> dict[str, object]:
    told: dict[str, object] = {"device": layout.offload.parameters, "pin_memory": True}
    if layout.offload.parameters == "cpu":
        return told
    size = int(weight_buffer_params(job.model, np.array(_shards(layout))))
    buffers = {"buffer_count": WEIGHT_BUFFERS, "buffer_size": size}
    return {**told, PATH_KEY: DRIVE, **buffers, "max_in_cpu": 0}


def _shards(layout: Layout) -> int:
    return layout.dp * layout.cp


def aio_section(layout: Layout) -> dict[str, object]:
    """How drives are read and written: the engine's own values, which ds_nvme_tune betters."""
    if not uses_drives(layout):
        return {}
    values = {
        "block_size": 1048576,
        "queue_depth": 8,
        "intra_op_parallelism": 1,
        "single_submit": False,
        "overlap_events": True,
    }
    return {"aio": values}


def other_sections(layout: Layout) -> dict[str, object]:
    """Keys outside of `zero_optimization`."""
    own = {"activation_checkpointing": {"cpu_checkpointing": True}}
    return {**aio_section(layout), **(own if layout.offload.checkpoints else {})}


def uses_drives(layout: Layout) -> bool:
    """Is something on drives?"""
    return "nvme" in (layout.offload.tier, layout.offload.parameters)


def drive_variables(layout: Layout) -> tuple[RequiredVariable, ...]:
    """What the user says of the drives."""
    return (DRIVES,) if uses_drives(layout) else ()


def filled_in(layout: Layout) -> tuple[tuple[str, UserVariable], ...]:
    """Keys of the file whose values only the user knows."""
    return ((PATH_KEY, UserVariable(DRIVE)),) if uses_drives(layout) else ()


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
            f"{DRIVE} is written into the file as {PATH_KEY}; aio has the engine's own values: "
            "ds_nvme_tune finds better ones"
        )
    if layout.offload.checkpoints:
        yield (
            f"{SWITCH} has to reach {FILE}: train.py calls offloaded_checkpoints(model, config), "
            "and leaves gradient_checkpointing_enable() out, which would undo it"
        )
