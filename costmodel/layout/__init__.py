"""One answer to a job, a `Layout`, and how each of its fields is written as text and as a number.

bits: bit set of modules as a column holds it.
Codec: one kind of choice: its text, its number in a column.
Count: codec of a whole number.
Flag: codec of on or off.
Layout: one complete parallel layout.
Modules: a set of parts of a layer, coded by bits.
Names: one of some names, coded by its place among them.
OFFLOAD_MODULES: parts of a layer whose inputs may wait in host memory for the backward pass.
OffloadSpec: what is kept outside GPU memory.
PARAMETER_TIERS: where parameters may lie: GPU, host, drive.
RECOMPUTE: how much is recomputed: none, selective, full.
RECOMPUTE_METHODS: which layers are recomputed in full: uniform, block.
RECOMPUTE_MODULES: parts of a layer that selective recomputation may drop.
Schedule: name of a pipeline schedule.
SCHEDULE_NAMES: schedules a layout may name.
SHARD_BITS: of each number of ranks in the code of a `ShardSpec`.
Shards: codec of a `ShardSpec`.
ShardSpec: ranks that share one copy of each state.
Share: codec of a fraction from 0 to 1.
stage_specs: virtual stages that differ in nothing but their number of layers.
Stages: virtual stages one by one, or null.
stages_text: layers of every stage, as `--layout stages=` takes them.
StageSpec: what one virtual stage holds, where stages are not all equal.
Tier: where what leaves the GPU goes: host or drive.
TIERS: where offloaded states lie.
"""

from trainplan.costmodel.layout.codecs import (
    SHARD_BITS,
    Codec,
    Count,
    Flag,
    Modules,
    Names,
    Shards,
    Share,
    Stages,
    bits,
    stages_text,
)
from trainplan.costmodel.layout.layout import (
    OFFLOAD_MODULES,
    PARAMETER_TIERS,
    RECOMPUTE,
    RECOMPUTE_METHODS,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
    TIERS,
    Layout,
    OffloadSpec,
    Schedule,
    ShardSpec,
    StageSpec,
    Tier,
    stage_specs,
)
