"""Seconds of the kernels of one GPU: products, attention, and what memory bounds.

ADAM_SHARD_BYTES: bytes moved a parameter to clip it and step Adam.
ADAM_STEP_BYTES: bytes moved a parameter by a fused Adam step alone.
ALIGNED_BYTES: alignment of the rows of operands that tensor cores load.
ATTENTION_BACKWARD_FLOP: FLOPs of the backward core of attention over those forward.
elementwise_seconds: seconds of kernels without reuse that move some bytes.
forward_rate: the curve of forward products: in fp8 they accumulate fast.
ForwardBackward: seconds of a forward pass, its backward pass, and the part that makes weight
    gradients.
fused_attention_seconds: seconds of the fused causal core of attention.
fused_slowness: seconds of a FLOP of fused attention over those of heads 128 wide.
grouped_rate: the curve of grouped products of experts.
kernel_head_dim: width of the fused kernel that a head runs on.
linear_seconds: seconds of linear layers: products forward, of input and of weight gradients.
optimizer_bytes_per_second: bytes per second of memory that an optimizer reaches.
Product: sizes m, n, k of one matrix product a row.
product_seconds: seconds of one product, corrected by measured ones near its shape.
roofline_seconds: seconds of one product by the curve of its GPU and precision.
streaming_bytes_per_second: bytes per second of memory that kernels without reuse reach.
sum_columns: sum of columns; a zero without shape for none.
unfused_attention_seconds: seconds of attention as two batched products and a softmax.
"""

from trainplan.costmodel.kernels.attention import (
    ALIGNED_BYTES,
    ATTENTION_BACKWARD_FLOP,
    fused_attention_seconds,
    fused_slowness,
    kernel_head_dim,
    unfused_attention_seconds,
)
from trainplan.costmodel.kernels.memory_bound import (
    ADAM_SHARD_BYTES,
    ADAM_STEP_BYTES,
    elementwise_seconds,
    optimizer_bytes_per_second,
    streaming_bytes_per_second,
    sum_columns,
)
from trainplan.costmodel.kernels.products import (
    ForwardBackward,
    Product,
    forward_rate,
    grouped_rate,
    linear_seconds,
    product_seconds,
    roofline_seconds,
)
