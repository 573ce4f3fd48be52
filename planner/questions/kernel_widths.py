"""Notes on widths of a model that the kernels of its GPU do not take as they are."""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job import Precision, storage_bytes
from trainplan.costmodel.kernels import ALIGNED_BYTES, kernel_head_dim, unfused_attention_seconds
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.model import core_dims, query_columns
from trainplan.costmodel.step import Estimate

UNITS: dict[Precision, int] = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}
"""Numbers that the products of a precision take at once; else those of ALIGNED_BYTES.

Source: NVIDIA/TransformerEngine `pytorch/utils.py`, assert_dim_for_fp8_exec, and
`pytorch/tensor/mxfp8_tensor.py`, blocks of 32.
"""


def width_notes(on: Context, layout: Layout, priced: Estimate) -> Iterator[str]:
    """One sentence for each width off the grid: which, what it costs of the step, what helps."""
    if on.job.model.mixer == "full_attention":
        of_step = priced.terms.attention / priced.step_time_s
        unfused = on.traits.kernels.attention == "unfused"
        yield from (_unfused if unfused else _fused)(on, of_step)
    yield from _products(on, layout)


def _fused(on: Context, attention: float) -> Iterator[str]:
    """A head on a wider kernel. Source: `kernel_head_dim`."""
    dims = core_dims(on.job.model)
    kernels = [kernel_head_dim(dim) for dim in dims]
    idle = 1 - sum(dims) / sum(kernels)
    if idle:
        yield (
            f"head_dim {max(dims)} runs on kernels {max(kernels)} wide, the rest zeros: at least "
            f"{idle * attention * 100:.1f} % of the step; multiples of 32 up to 128, and of 64 "
            "beyond, waste nothing"
        )


def _unfused(on: Context, attention: float) -> Iterator[str]:
    """Rows of heads that tensor cores cannot load. Source: `unaligned_factor`."""
    machine, dims = on.machine, core_dims(on.job.model)
    unit = ALIGNED_BYTES // machine.storage_bytes
    odd = [dim for dim in dims if dim % unit]
    if not odd:
        return

    def seconds(query: int, value: int) -> float:
        kernels = on.traits.kernels
        core = unfused_attention_seconds(
            machine,
            np.array([1e6]),
            on.job.training.seq_length,
            (query, value),
            dropout=kernels.dropout,
            legacy=kernels.of_2021,
        )
        return float((core.forward + core.backward)[0])

    lost = 1 - seconds(*(-(-dim // unit) * unit for dim in dims)) / seconds(*dims)
    yield (
        f"head_dim {odd[0]} is no multiple of {unit}, so unfused attention multiplies rows that "
        f"tensor cores cannot load: at least {lost * attention * 100:.1f} % of the step; take "
        "another number of heads, or fused attention"
    )


def _products(on: Context, layout: Layout) -> Iterator[str]:
    """Sides of the matrix products of a rank. Source: UNITS and ALIGNED_BYTES."""
    job, precision = on.job, on.job.training.precision
    aligned = ALIGNED_BYTES // storage_bytes(precision)
    unit = UNITS.get(precision, aligned)
    odd = [name for name, side in _sides(job.model, layout.tp).items() if side % unit]
    if not on.traits.kernels.pads_vocabulary and job.model.vocab_size % aligned:
        odd.append(f"vocab_size = {job.model.vocab_size}")
    if odd:
        yield (
            f"{' and '.join(odd)}: no multiple of {max(unit, aligned)}, so products may run at a "
            "fraction of their speed, which is not priced: pad it, or cut it otherwise"
        )


def _sides(model: ModelSpec, tp: int) -> dict[str, float]:
    """Widths that products of a rank read or write, by name."""
    whole = {"width of queries": query_columns(model), "intermediate_size": model.intermediate_size}
    by = f" / tp = {{}} / {tp}" if tp > 1 else " = {}"
    cut = {name + by.format(side): side / tp for name, side in whole.items()}
    return {f"hidden_size = {model.hidden_size}": model.hidden_size, **cut}
