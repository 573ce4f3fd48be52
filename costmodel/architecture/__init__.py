"""The model as it is stated: layers, mixers, experts, tower, and what of it is trained.

Activation: name of the nonlinearity between the matrices of a feed-forward block.
adapted: matrices of such a layer that have adapters.
ATTENTIONS: mixers whose core compares queries with keys.
ConvolutionSpec: a gated short convolution over the hidden width (LFM2, arXiv:2511.23404).
FeedForward: kind of a feed-forward block: dense, experts, none.
IndexerSpec: what picks the keys of sparse attention (DeepSeek-V3.2, arXiv:2512.02556, section
    2.1).
LinearAttentionSpec: linear attention whose state is a matrix of each value head.
LinearSpec: one matrix of weights.
LowRankSpec: queries, and maybe the output, through a low rank, with plain keys (Step-3).
Method: how less than every weight is trained: lora, qlora, frozen.
Mixer: kind of block that mixes tokens: attention, ssm, linear attention, convolution.
MlaSpec: multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
MLP_PROJECTIONS: matrices of a feed-forward block that can have an adapter.
ModelSpec: a decoder-only transformer.
MoeSpec: mixture of experts.
placed_layers: fields of a model whose layers have these parts, in order.
Projection: a matrix of a layer that an adapter may be added to.
projections: matrices of a layer of a model with one kind.
ProjectorSpec: matrices behind each other, an activation between two of them, maybe behind a norm.
RopeScaling: position scaling, kept for the exporters.
SsmSpec: selective state space.
TowerSpec: an encoder of images or sound whose tokens are in the sequence of the decoder.
Trained: what is trained where that is not every weight.
trains_embedding: has the token table a gradient?.
trains_head: has the output projection a gradient? A tied one is the token table.
"""

from trainplan.costmodel.architecture.layers import (
    ATTENTIONS,
    ConvolutionSpec,
    FeedForward,
    IndexerSpec,
    LinearAttentionSpec,
    LowRankSpec,
    Mixer,
    MlaSpec,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import Activation, ModelSpec, RopeScaling
from trainplan.costmodel.architecture.moe import MoeSpec, placed_layers
from trainplan.costmodel.architecture.tower import LinearSpec, ProjectorSpec, TowerSpec
from trainplan.costmodel.architecture.trained import (
    MLP_PROJECTIONS,
    Method,
    Projection,
    Trained,
    adapted,
    projections,
    trains_embedding,
    trains_head,
)
