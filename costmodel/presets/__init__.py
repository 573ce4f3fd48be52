"""Presets of models, and clusters and machines by name.

gpu_intended: the GPU of a name, of its driver's or of a short one.
gpus_called: GPUs that a name of a scheduler or a cloud may be, the usual first.
Machine: what has a name of its own.
machine_named: the catalog's name of a machine in another spelling.
machines: machines and racks by name, in the order of the catalog.
note_of: what a preset leaves out of its repository's file.
plugged_models: presets of plug-ins, and which plug-in each is from.
preset: the model of that name, or of that Hugging Face repository.
preset_config: the stored `config.json` of a preset, with its `_source`.
preset_named: the preset of a name in any case, or of a Hugging Face repository.
preset_names: names of all presets, in alphabetical order.
read_cluster: read `8x8:h100-sxm[@HOST]`, `64xh100`, `2xp5.48xlarge`, `gb200-nvl72`.
repositories: hugging Face names of checkpoints that have the architecture of a preset, read from
    first.
"""

from trainplan.costmodel.presets.clusters import (
    Machine,
    gpu_intended,
    gpus_called,
    machine_named,
    machines,
    read_cluster,
)
from trainplan.costmodel.presets.presets import (
    note_of,
    plugged_models,
    preset,
    preset_config,
    preset_named,
    preset_names,
    repositories,
)
