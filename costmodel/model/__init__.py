"""What a model holds and computes: exact parameters, adapters, and the FLOPs that MFU counts.

adapted_matrices: those with adapters.
core_dims: widths of a query and of a value of one head, as the core of attention sees them.
embedding_params: token and learned position table, projections to and from `embedding_size`,
    norm.
expert_hidden: width of what goes into routed experts and comes out of them.
grouped_columns: width of keys and values of all their heads, without latent attention.
halves: parts of a layer with a residual addition of their own.
latent_params: as `latent_met_params`, with biases.
matrices: those of a layer of a model with one kind, each by itself.
Matrix: a matrix of a layer.
met_weights: weights of matrices of a layer that a token meets on a rank.
MIXER_COUNTS: what each mixer.
mlp_params: weights and biases of one MLP of the given width, gated or not.
model_flop_per_step: forward and backward FLOPs of one optimizer step.
norm_params: weights (and biases, for LayerNorm) of one norm over `hidden_size`.
norms_per_layer: norms over `hidden_size` in one layer.
num_active_parameters: parameters one token visits.
num_parameters: parameters of the whole model, tied embeddings once, MTP modules left out.
output_gate_columns: output width of the projection to the gate on the attention's output.
projected_columns: output width of the projections to queries, keys and values, without latent
    attention.
quantised_bytes: bytes of the 4-bit matrices of a layer.
query_columns: output width of the query projection, all heads.
router_params: router weights of one MoE layer, with the shared expert's gate.
side_params: weights of the products next to both halves of a layer, and its weights in no product.
value_columns: input width of the attention output projection, all heads.
"""

from trainplan.costmodel.model.adapters import (
    Matrix,
    adapted_matrices,
    matrices,
    quantised_bytes,
)
from trainplan.costmodel.model.flops import model_flop_per_step
from trainplan.costmodel.model.params import (
    MIXER_COUNTS,
    core_dims,
    embedding_params,
    expert_hidden,
    grouped_columns,
    halves,
    latent_params,
    met_weights,
    mlp_params,
    norm_params,
    norms_per_layer,
    num_active_parameters,
    num_parameters,
    output_gate_columns,
    projected_columns,
    query_columns,
    router_params,
    side_params,
    value_columns,
)
