"""Does it matter how near a run is to others? The section of docs/accuracy.md on evidence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import inf
from statistics import fmean, median

from accuracy_tables import table
from evidence_table import published_run

from trainplan.cli.words import percent
from trainplan.costmodel.documents.constants import Shape
from trainplan.costmodel.validate.steps import TimedRow
from trainplan.planner.evidence.distance import distance
from trainplan.planner.evidence.envelope import Measurements
from trainplan.planner.evidence.evidence import is_inside

THIRDS = ("nearest third", "middle third", "farthest third")


def section(rows: Sequence[TimedRow]) -> str:
    """Errors by distance to the runs of other sources, and inside and outside their envelope."""
    groups = [row.run.source_group for row in rows]
    runs = [published_run(row, "") for row in rows]
    others = {
        name: tuple(run for run, group in zip(runs, groups, strict=True) if group != name)
        for name in dict.fromkeys(groups)
    }
    known = {name: Measurements(rest) for name, rest in others.items()}
    far = _distances([run.shape for run in runs], groups)
    order = sorted(range(len(runs)), key=lambda i: far[i])
    size = -(-len(runs) // len(THIRDS))
    thirds = [order[start : start + size] for start in range(0, len(runs), size)]
    inside = [
        is_inside(row.job, row.layout, known[name]) for row, name in zip(rows, groups, strict=True)
    ]
    parts = [
        *(
            (f"{name}, distance {far[part[0]]:.1f} to {far[part[-1]]:.1f}", part)
            for name, part in zip(THIRDS, thirds, strict=True)
        ),
        ("inside their envelope", [i for i, one in enumerate(inside) if one]),
        ("beyond it in some axis", [i for i, one in enumerate(inside) if not one]),
    ]
    sizes = [abs(row.error_fraction) for row in rows]
    return _text([(name, [sizes[i] for i in part]) for name, part in parts])


def _distances(shapes: Sequence[Shape], groups: Sequence[str]) -> list[float]:
    """Of each run to the nearest of another group; each two shapes are compared once."""
    of: dict[Shape, set[str]] = {}
    for shape, group in zip(shapes, groups, strict=True):
        of.setdefault(shape, set()).add(group)
    nearest = {(shape, group): inf for shape, own in of.items() for group in own}
    for one, other in combinations_with_replacement(of, 2):
        far = distance(one, other)
        for shape, there in ((one, of[other]), (other, of[one])):
            for group in of[shape]:
                if there - {group}:
                    nearest[shape, group] = min(nearest[shape, group], far)
    return [nearest[pair] for pair in zip(shapes, groups, strict=True)]


def _text(parts: Sequence[tuple[str, Sequence[float]]]) -> str:
    cells = [
        (name, str(len(sizes)), percent(median(sizes)), percent(fmean(sizes)))
        for name, sizes in parts
        if sizes
    ]
    return f"""\
## Near other runs, and far from them

A plan names the nearest published runs and warns where it leaves what was measured
([how](explanation/search.md#evidence-and-proof)). Here every run is compared by how far it is from
the runs of all other sources:

{table(("scored runs", "runs", "median", "mean"), cells)}

The constants were fitted on all of them, so this is no test of an unseen run. Read a warning as
"nobody has checked this", not as "this estimate is off"."""
