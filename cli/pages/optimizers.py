"""The table of optimizers, as text and as JSON."""

from collections.abc import Iterator, Mapping

import numpy as np
from rich.text import Text

from trainplan.cli.blocks import Part, headed, number, table
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers import OPTIMIZERS, Matrix, Optimizer
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.semantics import CHANGES

SHOWN = (4096, 16384)
"""Shape of the matrix whose state is shown as bytes a parameter."""
RANK = 256


def optimizers_page() -> Iterator[Part]:
    """All optimizers: state, work, and who has them."""
    rows, columns = SHOWN
    sizes = number("bytes/parameter", "{:.3g}".format)
    states = ((_usage(one), one.says, shown_bytes_per_param(one)) for one in OPTIMIZERS.values())
    yield table("", ("optimizer", "state of a matrix of m x n", sizes), states)
    yield (
        "Numbers are of 4 bytes, of 2 where there is no fp32 copy of the weights (galore, apollo); "
        f"bytes/parameter: of {rows:,} x {columns:,}, r = {RANK}, without weights and gradients. "
        "Of embedding, head and vectors muon, soap, shampoo, galore and apollo keep two moments."
    )
    yield Text("Work, exchange, sharding and runtimes", style="bold")
    for one in OPTIMIZERS.values():
        yield headed(one.name, *(Text(f"  {line}") for line in _lines(one)))


def optimizer_entry(name: str) -> Mapping[str, object]:
    """One optimizer as JSON."""
    one = OPTIMIZERS[name]
    return {
        "name": name,
        "settings": list(one.takes),
        "state": one.says,
        "shown_matrix": list(SHOWN),
        "shown_rank": RANK if "rank" in one.takes else None,
        "bytes_per_param": shown_bytes_per_param(one),
        "keeps_fp32_weights": not one.bare,
        "work": one.work or None,
        "collectives": one.collectives or None,
        "needs_whole_matrices": one.whole_matrices,
        "updates_by_layer": one.by_layer,
        "changes_training": CHANGES[one.changes].says if one.changes else None,
        "runtimes": _runtimes(one),
        "source": one.source,
    }


def shown_bytes_per_param(one: Optimizer) -> float:
    """Bytes of state a parameter of the matrix that is shown."""
    rows, columns = (np.asarray(float(side)) for side in SHOWN)
    request = OptimizerSpec(name=one.name, rank=RANK if "rank" in one.takes else None)
    width = BYTES_FP32 / 2 if one.bare else BYTES_FP32
    return float(one.state_bytes(Matrix(rows, columns), request, width) / (rows * columns))


def _usage(one: Optimizer) -> str:
    return one.name + "".join(f":{setting}=" for setting in one.needs)


def _runtimes(one: Optimizer) -> dict[str, str]:
    """Runtimes that have it, with their word for it."""
    words = {name: dict(traits.optimizers) for name, traits in RUNTIMES.items()}
    return {name: known[one.name] for name, known in words.items() if one.name in known}


def _lines(one: Optimizer) -> Iterator[str]:
    if one.work:
        yield f"work: {one.work}"
    if one.collectives:
        yield f"exchange: {one.collectives}"
    if one.whole_matrices:
        yield "needs whole matrices: ZeRO-1 gives each to one rank"
    if one.by_layer:
        yield "update=layer: one layer's gradients at once, on one GPU with one micro batch"
    if one.changes:
        yield f"changes the training: {CHANGES[one.changes].says}"
    yield f"runtimes: {', '.join(f'{name} ({word})' for name, word in _runtimes(one).items())}"
    yield f"source: {one.source}"
