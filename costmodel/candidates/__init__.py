"""Layouts of one job on one machine in one runtime: what every formula of the cost model takes.

`context` has them, `memo` remembers the answers of formulas for layouts that come one by one.

Candidates: a table of layouts with its job, machine and runtime traits.
Context: a job, the machine it runs on, and the traits of its runtime.
context_of: a job on a machine in the runtime that it names.
of_kinds: the layouts with a model of each kind of layer alone.
remembered: a formula whose answers for one row are kept, by the columns that it read.
"""

from trainplan.costmodel.candidates.context import Candidates, Context, context_of, of_kinds
from trainplan.costmodel.candidates.memo import remembered
