"""Seconds and bytes of each kind of block, for one micro batch on one rank.

`kinds` prices all kinds of block of a model, once for each distinct key of columns; `rows` gathers
them for every layout with what it recomputes and offloads. A layer is made of parts: `attention`
or another of `mixers`, then `feed_forward`; `embedding_and_head` and `tower` are around layers.

activation_tensors: tensors of the MLP's width kept around its activation.
Block: one kind of block: seconds of both passes, bytes kept, modules that may be recomputed.
block_counts: blocks of a model by kind: layers, embedding, head, MTP modules.
Blocks: all kinds of block of one model.
blocks: every kind of block of a model, for each key.
Copies: bytes of a layer and micro batch that go to the host, and that leave the device.
distinct_keys: distinct block keys of a table, and the key of each row.
embedding_kept_bytes: bytes kept behind the token table of one micro batch.
LOSS_PASSES: elements moved per logit by a fused cross entropy, both passes.
key_value_columns: columns of keys and values that one tensor rank projects.
norm_extra_bytes: bytes a token that a norm keeps beyond its input and output.
packed_rows: rows of packed sequences of a job, where it has some.
PassSeconds: seconds of one pass by term: products, attention, elementwise, collectives, host.
row_blocks: every distinct block priced once and gathered by row.
RowBlocks: blocks of distinct keys, and what each row makes of them.
TowerBlock: a tower, with what full recomputation makes of it.
waits: who waits for whom where rows of packed sequences differ.
"""

from trainplan.costmodel.blocks.activations import activation_tensors, norm_extra_bytes
from trainplan.costmodel.blocks.attention.key_values import key_value_columns
from trainplan.costmodel.blocks.attention.packed import packed_rows, waits
from trainplan.costmodel.blocks.block import Block
from trainplan.costmodel.blocks.embedding_and_head import LOSS_PASSES, embedding_kept_bytes
from trainplan.costmodel.blocks.kinds import Blocks, block_counts, blocks, distinct_keys
from trainplan.costmodel.blocks.parts import PassSeconds
from trainplan.costmodel.blocks.rows import Copies, RowBlocks, row_blocks
from trainplan.costmodel.blocks.tower import TowerBlock
