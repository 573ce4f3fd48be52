"""What is planned for: a `Job` is a model, a training and a cluster on a runtime.

Attention: name of an attention kernel.
ContextExchange: how context parallel ranks exchange keys and values.
CrossEntropy: name of a kernel of the loss.
DEFAULT_RUNTIME: runtime of a job that names none.
Dispatcher: how tokens are sent to experts.
Float8Recipe: how factors of 8-bit products are scaled.
FULL_WIDTH: formats whose weights and activations are stored in 4 bytes.
GradientType: type of the gradients that are kept.
Graph: what of a step is captured as a CUDA graph.
Job: the question a plan answers.
LengthSpec: a histogram of sequence lengths, or a distribution.
Lognormal: lengths whose logarithm is normal.
LOW_PRECISION: formats whose products need their operands cast.
OptimizerSpec: an optimizer of `costmodel.optimizers`, with what the user set of it.
OuterSpec: islands that take local steps, joined by outer steps.
Packing: each sequence padded to a row.
Precision: number format of the matrix products.
Proxy: a library that posts DeepEP's messages from the host.
RoutingSpec: which experts the tokens of a micro batch choose.
RuntimeOptions: switches of a runtime that change time or memory.
StatePrecision: how weights, gradients and moments are stored.
StateType: type of one state of the optimizer.
storage_bytes: bytes of one activation or working weight.
TrainingSpec: one training job.
with_trained: the model with what a text of `--train` trains.
"""

from trainplan.costmodel.job.job import (
    DEFAULT_RUNTIME,
    FULL_WIDTH,
    LOW_PRECISION,
    Attention,
    ContextExchange,
    CrossEntropy,
    Dispatcher,
    Float8Recipe,
    GradientType,
    Graph,
    Job,
    LengthSpec,
    Lognormal,
    Packing,
    Precision,
    Proxy,
    RuntimeOptions,
    StatePrecision,
    StateType,
    TrainingSpec,
    storage_bytes,
)
from trainplan.costmodel.job.optimizer import OptimizerSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.job.trained import with_trained
