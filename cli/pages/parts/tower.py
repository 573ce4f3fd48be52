"""The tower of a model in one line."""

from __future__ import annotations

from trainplan.cli.words import DOT, parameters, plural
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.towers import tower_params

TRAINED = {"none": "trained", "encoder": "encoder frozen", "all": "frozen"}


def tower_lines(model: ModelSpec) -> tuple[str, ...]:
    """What sees or hears, what it is given, and what of it is trained; nothing without a tower."""
    tower = model.tower
    if tower is None:
        return ()
    given = (
        f"{plural(tower.samples_per_sequence, 'sample')} a sequence, each of "
        f"{tower.patches_per_sample:,} patches and {plural(tower.tokens_per_sample, 'token')}"
    )
    size = f"with {tower.called} of {parameters(tower_params(tower))} parameters"
    return (DOT.join((size, given, TRAINED[tower.frozen])),)
