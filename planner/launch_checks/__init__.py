"""Checks someone's launch: what it costs, which settings cost it time, which edits help.

check_launch: what a launch costs, and what would be faster.
Edit: a set of edits and what the launch is with it.
LaunchCheck: what is known of a launch.
Lint: a suggestion with its price.
LaunchSaves: how often a launch saves, and how often is best.
WORTH: edits that save a smaller share of a step are not worth making.
"""

from trainplan.planner.launch_checks.check import LaunchCheck, check_launch
from trainplan.planner.launch_checks.edits import WORTH, Edit
from trainplan.planner.launch_checks.lints import Lint
from trainplan.planner.launch_checks.saves import LaunchSaves
