"""How well a profile's curves tell what was not measured, on tables that others recorded.

python examples/profile_fits/run.py --checkout ~/aiconfigurator

Prints, for every published table, median errors of bf16 products by the curves through the 96 and
the 12 that the profiler would choose, and of collectives with each size left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from recorded import COLLECTIVES, GPUS, OPERATIONS, PRODUCTS, collectives, files, products
from score import COUNTS, Messages, Score, score, stated_by, stated_in_turn

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import PlanError
from trainplan.profiler.bench.collectives import SIZES

REQUEST = (0.06, 0.08)
"""Most that the median error may be, for each of `COUNTS`."""
REQUESTED_SIZES = {"all_reduce": 0.05}
REQUESTED_OTHERS = 0.07


def percent(fraction: float, most: float = float("inf")) -> str:
    """A median error; a star where it is more than asked."""
    text = "-" if isnan(fraction) else f"{100 * fraction:.1f}"
    return f"{text}{'*' if fraction > most else ' '}".rjust(6)


def product_lines(checkout: Path, gpu: str) -> Iterator[str]:
    """One line for every table, and the mean and the worst of all."""
    scores = []
    for name, file in files(checkout, gpu, PRODUCTS):
        scores.append(score(products(file), catalog.gpu(GPUS[gpu])))
        yield f"{gpu:10}{name:22}{_text(scores[-1])}"
    for title, of in (("mean", _mean), ("worst", max)):
        errors = [of([one.inside[i] for one in scores]) for i in range(len(COUNTS))]
        text = " ".join(percent(e, most) for e, most in zip(errors, REQUEST, strict=True))
        yield f"{gpu:10}{title:22}{text}"


def _text(one: Score) -> str:
    stated = [percent(e, most) for e, most in zip(one.inside, REQUEST, strict=True)]
    return " ".join([*stated, percent(one.noise), *(percent(e) for e in one.beyond)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def collective_lines(checkout: Path, gpu: str) -> Iterator[str]:
    """One line for every operation of a table: groups of 2, 4 and 8."""
    for name, file in files(checkout, gpu, COLLECTIVES):
        recorded = list(collectives(file))
        for operation in OPERATIONS:
            most = REQUESTED_SIZES.get(operation, REQUESTED_OTHERS)
            mine = [m for m in recorded if m.operation == operation]
            if mine:
                text = "  ".join(_both(m, most) for m in mine)
                yield f"{gpu:10}{name:22}{operation:16}{text}"


def _both(messages: Messages, most: float) -> str:
    stated = stated_in_turn(messages), stated_by(messages, SIZES)
    return f"{messages.ranks}:{''.join(percent(error, most) for error in stated)}"


def report(checkout: Path) -> Iterator[str]:
    """All lines."""
    counts = [f"by {count}" for count in COUNTS]
    titles = " ".join(title.rjust(6) for title in (*counts, "noise", *counts))
    yield "bf16 products: median error, %; * is more than asked (6 by 96, 8 by 12); the last two"
    yield "columns are of products beyond the range of those that are spread out"
    yield f"{'':32}{titles}"
    for gpu in GPUS:
        yield from product_lines(checkout, gpu)
    yield ""
    yield "collectives, by GPUs of the group: median error, %, of a size left out, and of others"
    yield "told by those of the profiler; * is more than asked (5 for all_reduce, 7 for others)"
    for gpu in GPUS:
        yield from collective_lines(checkout, gpu)


def main() -> int:
    """Exit code: 0 all printed, 2 for an input that is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True, help="aiconfigurator repository")
    options = parser.parse_args()
    try:
        for line in report(options.checkout):
            sys.stdout.write(f"{line}\n")
    except PlanError as error:
        sys.stderr.write(f"run.py: error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
