"""Predictions against measured runs: rows, errors, intervals, ranking.

It is pure, (runs, labels) to scores. `cases` reads what a record states of its job and layout.

Coverage: where the measured steps of a group of rows lie.
Errors: errors, predicted / measured - 1, of a group of rows.
GainErrors: how often gains of settings are right.
measured_step_seconds: step time of a run, or what its throughput implies.
observation_of: a run as an observation, or why it is none.
OneSteps: with partners of the family of each run, and without these.
POOLED: name of all rows together.
predict: price every run that can be priced, in order.
Prediction: a measured run with its estimate.
preset_of: the preset of that name, of a record without sizes.
Ranking: all groups and their means.
RankingGroup: layouts of one job, measured by one source or several.
RankingSize: means over the groups of so many layouts.
Scores: how well the model agrees with measured runs.
scores: every score.
timed_rows: priced runs with a measured step time.
TimedRow: a priced run with a measured step time.
unreadable: a record that does not follow the schema.
Verdicts: what fits and what does not, against labels.
worst: the rows that are most off, as a factor.
"""

from trainplan.costmodel.validate.cases.model import preset_of
from trainplan.costmodel.validate.gains import GainErrors
from trainplan.costmodel.validate.intervals import Coverage
from trainplan.costmodel.validate.memory_scores import Verdicts
from trainplan.costmodel.validate.observations import observation_of
from trainplan.costmodel.validate.one_step import OneSteps
from trainplan.costmodel.validate.predict import Prediction, predict, unreadable
from trainplan.costmodel.validate.ranking import Ranking, RankingGroup, RankingSize
from trainplan.costmodel.validate.scores import Scores, scores, worst
from trainplan.costmodel.validate.steps import (
    POOLED,
    Errors,
    TimedRow,
    measured_step_seconds,
    timed_rows,
)
