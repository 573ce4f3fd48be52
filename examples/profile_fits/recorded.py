"""Tables of the aiconfigurator repository that the user names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from score import Messages, Products

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.columns import FloatColumn

DATA = Path("aic-core/src/aiconfigurator_core/systems/data")
GPUS = {
    "a100_sxm": "a100-sxm-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200",
}
"""The repository's names, and those of the catalog."""
PRODUCTS, COLLECTIVES = "gemm/*/*/gemm_perf.parquet", "comm/nccl/*/nccl_perf.parquet"
ELEMENT_BYTES = 2
LEAST_BYTES = 2**13
"""The smallest message that the profiler sends. Source: `profiler.bench.collectives.SIZES`."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


def files(checkout: Path, gpu: str, pattern: str) -> Iterator[tuple[str, Path]]:
    """Files of one GPU, with the library and version they are of.

    Raises:
        SpecError: The checkout lacks them.
    """
    found = sorted((checkout / DATA / gpu).glob(pattern))
    if not found:
        raise SpecError(
            f"{checkout / DATA / gpu / pattern}: no such file: "
            "give --checkout the top of the aiconfigurator repository"
        )
    for file in found:
        yield f"{file.parts[-3]} {file.parts[-2]}", file


def products(file: Path) -> Products:
    """The bf16 products of a table."""
    precision, m, n, k, milliseconds = columns(file, ("gemm_dtype", "m", "n", "k", "latency"))
    rows = precision == "bfloat16"
    sizes = np.stack([m, n, k], axis=1)[rows].astype(np.int64)
    return Products(sizes, milliseconds[rows].astype(float) / 1e3)


def collectives(file: Path) -> Iterator[Messages]:
    """The 16-bit collectives of a table; a size measured more than once counts as its median."""
    names = ("nccl_dtype", "op_name", "num_gpus", "message_size", "latency")
    precision, operation, ranks, elements, milliseconds = columns(file, names)
    for name in OPERATIONS:
        for size in (2, 4, 8):
            rows = (precision == "half") & (operation == name) & (ranks == size)
            seconds: dict[int, list[float]] = {}
            for count, taken in zip(elements[rows], milliseconds[rows], strict=True):
                seconds.setdefault(int(count) * ELEMENT_BYTES, []).append(taken / 1e3)
            line = [(b, float(np.median(s))) for b, s in sorted(seconds.items())]
            line = [(b, s) for b, s in line if b >= LEAST_BYTES]
            if line:
                yield Messages(name, size, tuple(line))


def columns(file: Path, names: tuple[str, ...]) -> list[FloatColumn]:
    """Columns of a parquet file.

    Raises:
        SpecError: The file is not one, or nothing is here to read it with.
    """
    try:
        from pyarrow import ArrowInvalid, parquet  # noqa: PLC0415
    except ImportError:
        raise SpecError(
            "pyarrow is not installed, which this example alone needs: pip install pyarrow"
        ) from None
    try:
        table = parquet.read_table(file, columns=list(names), partitioning=None)
        return [table[name].to_numpy() for name in names]
    except (ArrowInvalid, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(
            f"{file}: {reason}: if it is a pointer of Git LFS, run `git lfs pull`"
        ) from None
