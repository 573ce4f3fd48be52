"""Layouts compared: two of them, one and a plan, plans at values of parameters.

`remedy` has what makes a layout run that is illegal or too large.

compare: compare two layouts, each of its job.
Comparison: all that differs.
Curve: points along the first knob, all other knobs held.
field_differences: fields of two documents that differ, in the order of the first.
FieldDifference: a field of a job or a layout that differs.
Offer: a cluster with prices, as it is offered.
Offers: offers compared, and the plan on the cheapest.
offers: the cheapest plan on each of some offers.
OffersDocument: what a job costs on each of some offers.
parse_varied: read a parameter with its values.
Point: one job of the sweep and its best plan.
remedies: the fastest layouts one change away, then the best one that holds its degrees.
Proof: what the search of a plan proved of it.
Remedy: the layout with something changed.
Setting: a knob at a value.
Side: one of the two plans, priced.
single_changes: layouts that differ in one thing, whatever GPUs they use.
Sweep: curves of best plans.
sweep: the best plan at every value of some parameters.
term_differences: seconds of every term, largest difference first.
TermDifference: one term of two steps.
Varied: a knob and the values it takes.
Verdict: why a layout is not the answer of a plan.
why_not: why a layout is not the one a plan chose.
WhyNot: the layout against the plan's.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.comparisons.comparison import (
        Comparison,
        FieldDifference,
        Proof,
        Side,
        TermDifference,
        compare,
        field_differences,
        term_differences,
    )
    from trainplan.planner.comparisons.neighbours import single_changes
    from trainplan.planner.comparisons.offered import Offer, Offers, OffersDocument, offers
    from trainplan.planner.comparisons.parameters import Varied, parse_varied
    from trainplan.planner.comparisons.remedy import Remedy, remedies
    from trainplan.planner.comparisons.sweeps import (
        Curve,
        Point,
        Setting,
        Sweep,
        sweep,
    )
    from trainplan.planner.comparisons.verdict import Verdict, WhyNot, why_not
else:
    __getattr__ = door(__name__)
