"""A gated short convolution over the hidden width."""

from __future__ import annotations

from trainplan.costmodel.blocks.mixers.carried import Carried, carried_part
from trainplan.costmodel.blocks.parts import Part, Shapes

MOVED, KEPT, KERNELS = 8, 6, 3
"""Of its channels: elements moved, elements kept, and kernels. A gate before the convolution and
one behind it read two tensors and write one each, the convolution reads and writes one; kept are
the three projected tensors, the gated input, the convolved one and the output.

Source: derived; transformers `modeling_lfm2.py`, Lfm2ShortConv.
"""


def convolution_part(shapes: Shapes) -> Part:
    """Two gates and a convolution between two projections, with the norms of the layer."""
    width = shapes.job.model.hidden_size
    sizes = Carried(
        columns=3 * width,
        outputs=width,
        products=(),
        moved=MOVED * width,
        kept=KEPT * width,
        kept_fp32=0,
        kernels=KERNELS,
    )
    return carried_part(shapes, sizes)
