"""What training runtimes do: their traits, with the options of a job, and what each may not.

RUNTIMES: traits of every runtime, by the `runtime` values of measured runs.
RuntimeTraits: behaviour of one training runtime, with the options a run sets or its defaults.
traits_of: those of a job, with its options.
runtime: those of a name, with its default options.
runtime_with: the runtime of a job that names none.
executed: rules of what a runtime executes, and of what it can keep off the GPU.
executed_by: runtimes that run a pipeline of this shape under a schedule.
EVEN_SPLIT: name of the rule of runtimes that cut layers into stages by themselves.
FILLED: schedules that torch builds for as many micro batches as stages at least.
stated_needs: settings that a job states and its machine does not start, and their releases.
option_without_price: a stated value that the runtime does not run with, and what to do.
Setting: a value of an option that a search may choose instead of the runtime's default.
Recipe: defaults of its command line and of the recipes it is measured with.
Offload: one choice of what waits on the host, with what is recomputed.
AttentionKernel: an attention core by its name.
attention_on: the core on the GPUs of a job.
Autograd: tensors that a graph of operations has beyond those of fused kernels.
HEAD_BYTES: peak bytes per logit, by kernel of the loss.
loss_tiles: tiles of the loss.
model_modules: recompute modules that do something in a model.
IN_MOE_LAYERS: modules that only mixture-of-experts layers have.
all_linear_biased: does every linear layer have a bias?
is_hybrid: has a model Mamba layers, or layers of one half?
uncommon_parts: parts of any layer that not every runtime has.
pipeline_layout_string: text of Megatron's `--pipeline-model-parallel-layout`.
"""

from trainplan.costmodel.runtimes.attention import attention_on
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.executes import EVEN_SPLIT, executed, model_modules
from trainplan.costmodel.runtimes.megatron.features import all_linear_biased
from trainplan.costmodel.runtimes.megatron.offload import IN_MOE_LAYERS
from trainplan.costmodel.runtimes.megatron.stage_text import pipeline_layout_string
from trainplan.costmodel.runtimes.options import option_without_price
from trainplan.costmodel.runtimes.registry import (
    RUNTIMES,
    executed_by,
    runtime,
    runtime_with,
    stated_needs,
    traits_of,
)
from trainplan.costmodel.runtimes.torchtitan_rules import FILLED
from trainplan.costmodel.runtimes.traits.footprint import Autograd
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES, AttentionKernel
from trainplan.costmodel.runtimes.traits.layers import is_hybrid, uncommon_parts
from trainplan.costmodel.runtimes.traits.offloading import Offload
from trainplan.costmodel.runtimes.traits.recipe import Recipe
from trainplan.costmodel.runtimes.traits.settings import Setting
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles
