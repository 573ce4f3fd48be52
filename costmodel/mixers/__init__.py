"""What mixes tokens in place of plain attention: parameters, products, and the tokens attended to.

attention_span: tokens that a token attends to on average in a layer of a model with one kind.
CONVOLUTION: counts of a short convolution.
core_products: of the mixer of a layer of a model with one kind.
CoreProduct: so many rows for each token, `rows x inner` times `inner x columns`.
INDEXER: what sparse attention has more than attention.
indexer_flop: forward FLOPs of the indexer for one token.
kernel_length: length of a causal sequence whose queries see as many keys as those of this layer.
LINEAR_ATTENTION: counts of linear attention.
linear_input_columns: output width of the projections of the input that heads are cut with.
linear_of: as `ssm_of`.
MAMBA: counts of a state space.
MixerCounts: parameters of one mixer in a layer of a model with one kind, and FLOPs of its core.
NOTHING: a layer that mixes no tokens.
projected_columns: output width of the input projection of a mixer that carries a state.
ssm_convolved_columns: channels of the short convolution.
ssm_input_columns: output width of the input projection.
ssm_of: sizes of a layer that the specification has checked to have them.
"""

from trainplan.costmodel.mixers.attended_tokens import attention_span, kernel_length
from trainplan.costmodel.mixers.params import (
    CONVOLUTION,
    INDEXER,
    LINEAR_ATTENTION,
    MAMBA,
    NOTHING,
    MixerCounts,
    linear_input_columns,
    projected_columns,
    ssm_convolved_columns,
    ssm_input_columns,
)
from trainplan.costmodel.mixers.products import (
    CoreProduct,
    core_products,
    indexer_flop,
    linear_of,
    ssm_of,
)
