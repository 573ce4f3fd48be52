"""What of a block one rank has: parameters, vocabulary, tiles, casts, layers of a tower.

`cuts` has what tensor, expert and context ranks cut, and tiles along tokens; `tower` the layers
of a tower as models of their own.

added_bytes: bytes moved to add the weight gradients of all tiles but the first.
CAST_BYTES: bytes of one number in the precision of a product, with its scale.
cast_weight_bytes: bytes of what products read of one weight, kept between micro batches.
context_ways: rows that exchange heads for sequence, and rows that gather keys and values.
dense_mlp_params: parameters of a dense MLP on one tensor rank.
experts_params: parameters of the routed experts of a layer on one rank.
Gathered: a weight that generalised tensor parallelism gathers by itself.
gathered_weights: those of a layer of one kind, in the order in which it reads them.
heads_to_cut: key-value heads that an exchange of heads assigns.
loss_share: share of the logits that exist at once.
matrix_shards: the columns `gtp` and `egtp`, where any row cuts matrices by them.
mlp_share: share of its tokens that an MLP holds inside at once.
mlp_tiles: tiles of an MLP.
needs_second_cast: whether the backward pass reads another cast of a weight.
padded_vocab: rows of the padded vocabulary.
projected_share: share of the tokens that the output projection and the loss see.
remade_bytes: bytes of the copy of one frozen weight that every backward pass makes anew.
shared_experts_params: parameters of the shared experts of a layer on one tensor rank.
table_weights: weights of the token table, or of the output projection, on one tensor rank.
tower_layers: layers of a tower as models of one kind of layer, and how many there are of each.
tower_ranks: tensor ranks that the matrices of a tower are cut over.
tower_rows: the layouts as some layers of a tower meet them.
whole_layer_params: of a layer, what every tensor rank has whole.
wire_bytes: bytes of one weight that is gathered.
VOCAB_MULTIPLE: the vocabulary is padded to a multiple of this times tp.
"""

from trainplan.costmodel.shards.by_matrix import (
    Gathered,
    gathered_weights,
    matrix_shards,
    whole_layer_params,
    wire_bytes,
)
from trainplan.costmodel.shards.cuts import (
    CAST_BYTES,
    VOCAB_MULTIPLE,
    added_bytes,
    cast_weight_bytes,
    context_ways,
    dense_mlp_params,
    experts_params,
    heads_to_cut,
    loss_share,
    mlp_share,
    mlp_tiles,
    needs_second_cast,
    padded_vocab,
    projected_share,
    remade_bytes,
    shared_experts_params,
    table_weights,
)
from trainplan.costmodel.shards.tower import tower_layers, tower_ranks, tower_rows
