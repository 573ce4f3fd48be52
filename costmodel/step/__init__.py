"""The whole step: a lower bound and bytes for every row, simulated seconds for the finalists.

`estimate.price` is the sum for many layouts in closed form, `simulate.explicit` runs the schedule
of a few and accounts for every second. `heterogeneous` does both for unlike node groups,
`node_bound` bounds what is not chosen yet, `energy`, `money` and `placement` follow from a step.
"""

from trainplan.costmodel.step.estimate import Priced, price
from trainplan.costmodel.step.results import Estimate
from trainplan.costmodel.step.simulate import explicit

__all__ = ["Estimate", "Priced", "explicit", "price"]
