"""The deepest model of the same shape that trains on the same machines."""

from dataclasses import dataclass

from trainplan.costmodel.model import num_parameters
from trainplan.planner.cases import Case, feasible, replaced
from trainplan.planner.work import Budget

MOST_LAYERS = 1024
"""As `ModelSpec.num_hidden_layers` takes."""


@dataclass(frozen=True, slots=True)
class LargestModel:
    """What fits and what does not, with the question."""

    num_hidden_layers: int
    num_parameters: int
    too_many_layers: int | None
    """The next number of layers, of which nothing fits; null: the largest that is planned fits."""


def largest_model(case: Case, budget: Budget) -> LargestModel | None:
    """The most layers with which anything fits, all else equal.

    Of models whose layers are all of one kind; null for others, and where the time struck before
    both sides were known. Halving finds two neighbours of which one fits and the other does not.
    """
    model = case.job.model
    if len(model.kinds) > 1 or model.layers is not None or len(case.job.cluster.groups) > 1:
        return None

    def fits(layers: int) -> bool:
        deeper = replaced(model, num_hidden_layers=layers)
        return feasible(case.with_job(replaced(case.job, model=deeper)), budget)

    most, over = model.num_hidden_layers, 2 * model.num_hidden_layers
    while over <= MOST_LAYERS and fits(over):
        most, over = over, 2 * over
    if over > MOST_LAYERS:
        if fits(MOST_LAYERS):
            return LargestModel(MOST_LAYERS, _parameters(case, MOST_LAYERS), None)
        over = MOST_LAYERS
    while over - most > 1:
        middle = (most + over) // 2
        most, over = (middle, over) if fits(middle) else (most, middle)
    return None if budget.spent() else LargestModel(most, _parameters(case, most), over)


def _parameters(case: Case, layers: int) -> int:
    return num_parameters(replaced(case.job.model, num_hidden_layers=layers))
