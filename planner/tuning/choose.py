"""Which contender to run next: the one that is most likely the fastest of all.

On simulated machines (examples/tuning) expected improvement, one trial ahead or two, found the
fastest less often.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.measured import MEANINGS, SCALARS
from trainplan.planner.tuning.belief import Belief
from trainplan.planner.tuning.stop import Untried


def choose(belief: Belief, left: Untried, rows: BoolColumn) -> int:
    """The next trial; of contenders that are as likely the fastest, the one expected faster."""
    order = np.lexsort((belief.log_seconds, -left.fastest))
    return next(int(row) for row in order if rows[row])


def reason(belief: Belief, left: Untried, row: int, best: float | None) -> str:
    """One line: what the trial can change; `best` is the logarithm of the best measured step."""
    likely = f"the fastest of all, within a near tie, with {100 * left.fastest[row]:.0f} %"
    if best is None:
        return f"{likely} probability by the model"
    shorter = float(-np.expm1(belief.log_seconds[row] - best))
    if shorter > 0:
        return f"expected {100 * shorter:.1f} % faster than the best measured; {likely} probability"
    return f"{likely} probability; identifies most of the {stated(belief, row)}"


def stated(belief: Belief, row: int) -> str:
    """The scalar that a trial of a contender narrows most."""
    known = np.maximum(np.diag(belief.scalars_covariance), 1e-18)
    share = belief.cross[row] ** 2 / known
    return MEANINGS[SCALARS[int(np.argmax(share))]]
