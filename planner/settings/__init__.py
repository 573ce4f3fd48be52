"""Settings of a runtime that a search varies, in combinations.

Assumed: a setting that an answer is priced with, and what it saves.
assumed_text: all of them in one line.
Combination: a job under some settings.
combinations: all combinations of settings that the job does not state, its own options first.
covers: does no layout take longer or more memory under `one`, whatever its rules?
ELSEWHERE: name of the rule of layouts that are searched under settings that are no slower.
Level: settings a search varies.
values_of: values of each setting that some combinations have, as `--option` takes them.
with_settings: the job with more options.
without_one: combinations with one setting less, where the runtime has them.
"""

from trainplan.planner.settings.assumed import Assumed, assumed_text
from trainplan.planner.settings.combinations import (
    ELSEWHERE,
    Combination,
    Level,
    combinations,
    covers,
    values_of,
    with_settings,
    without_one,
)
