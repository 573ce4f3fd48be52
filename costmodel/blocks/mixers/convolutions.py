"""Mixers with a short convolution: Mamba with its scan and gated norm, and a gated convolution."""

from trainplan.costmodel.architecture import ModelSpec, SsmSpec
from trainplan.costmodel.blocks.mixers.carried import Carried, carried_part
from trainplan.costmodel.blocks.parts import Part, Shapes
from trainplan.costmodel.mixers import (
    core_products,
    ssm_convolved_columns,
    ssm_input_columns,
    ssm_of,
)

SCAN_KERNELS = 7
"""Kernels of Mamba-2 beside its projections: convolution, time steps, states of chunks, their
passing, scores, outputs, gated norm.

Source: derived; state-spaces/mamba `mamba_ssm/ops/triton/ssd_combined.py`,
_mamba_chunk_scan_combined_fwd and MambaSplitConv1dScanCombinedFn.
"""
SELECTIVE_SCAN_KERNELS = 2
"""Of Mamba-1: convolution and scan. Source: derived; state-spaces/mamba
`mamba_ssm/ops/selective_scan_interface.py`, MambaInnerFn."""

GRADIENTS_SPEED = 0.23
"""Speed of the products inside chunks of Mamba-2 backward, over that forward.

Source: derived; Mamba-2 of 1.34 billion parameters (48 layers of 64 heads of 64, states of 128, one
group, chunks of 256) trains on 4 sequences of 4,096 tokens at 102.5, 239.2 and 360.4 TFLOP/s, six a
parameter and token, on A100, H200 and GB200 (state-spaces/mamba issue 904): 1.29, 0.55 and 0.37 s a
step. What all else does not take of it leaves these products 7.9, 4.4 and 3.7 ms a layer, which at
the speed of those forward would take 2.7, 0.76 and 0.76: 0.35, 0.17 and 0.21.
"""


def mamba_part(shapes: Shapes) -> Part:
    """A Mamba mixer with the norms of its layer."""
    return carried_part(shapes, mamba_sizes(shapes.job.model, shapes.job.training.seq_length))


def mamba_sizes(model: ModelSpec, seq_length: int) -> Carried:
    """What a Mamba mixer moves and keeps.

    Kept: the output of the input projection, that of the scan and that of the gated norm, and a
    number per group in fp32; convolution, time steps, scores and states are made once more.
    Source: state-spaces/mamba `ssd_combined.py`, MambaSplitConv1dScanCombinedFn, save_for_backward;
    of Mamba-1 `selective_scan_interface.py`, MambaInnerFn (checkpoint_lvl 1), which keeps the
    inputs of both inner projections too.
    """
    ssm = ssm_of(model)
    columns, inner = ssm_input_columns(ssm), ssm.inner_width
    rank = ssm.time_step_rank
    normed = inner * (ssm.gated_norm or bool(rank))
    return Carried(
        columns=columns,
        outputs=inner,
        products=core_products(model, seq_length),
        moved=_scanned(ssm, seq_length) + 3 * normed,
        kept=columns + inner + normed + ((rank + ssm.group_width) if rank else 0),
        kept_fp32=0 if rank else ssm.gated_norm * ssm.num_groups,
        kernels=SELECTIVE_SCAN_KERNELS if rank else SCAN_KERNELS,
        inner=((rank + ssm.group_width, inner), (inner, rank)) if rank else (),
        moved_backward=None if rank else _moved_backward(ssm, seq_length),
        gradients_speed=1.0 if rank else GRADIENTS_SPEED,
        convolved=(2 * ssm_convolved_columns(ssm), 5 * ssm_convolved_columns(ssm)),
    )


def _scanned(ssm: SsmSpec, seq_length: int) -> float:
    """Elements that the scan moves for a token.

    Of Mamba-2: x thrice (states, outputs, written), B and C twice, scores in fp32 written and read
    by every group, time steps; states of a chunk in fp32 written, read and passed on in storage
    precision, twice over. Of Mamba-1: x, time step, gate and output, with the state on chip.
    Source: derived from `ssd_combined.py`; Gu and Dao, arXiv:2312.00752, section 3.3.2.
    """
    if ssm.time_step_rank:
        return 4 * ssm.inner_width + ssm.group_width
    chunk = min(ssm.chunk_size, seq_length)
    states = 6 * ssm.inner_width * ssm.state_size / chunk
    scores = 4 * ssm.num_groups * chunk
    return 3 * ssm.inner_width + 2 * ssm.group_width + scores + states + 5 * ssm.num_heads


def _moved_backward(ssm: SsmSpec, seq_length: int) -> float:
    """Elements that the kernels of Mamba-2 move backward for a token; fp32 counts twice.

    Of the inner width: norm and gate 5; x or the output's gradient for states, their gradients, B
    and C 1 each; for x 3, for scores and for decays 2 each. States: made 2, passed 4, gradients 2,
    passed back 6, read thrice. Scores: made, read by x, made and read again, and twice by their two
    products; B and C 19.
    Source: derived from `ssd_combined.py`, MambaSplitConv1dScanCombinedFn.backward and
    _mamba_chunk_scan_combined_bwd.
    """
    chunk = min(ssm.chunk_size, seq_length)
    states = 17 * ssm.inner_width * ssm.state_size / chunk
    scores = 12 * ssm.num_groups * chunk
    groups = 19 / 2 * ssm.group_width
    return 16 * ssm.inner_width + states + scores + groups + 20 * ssm.num_heads


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
