"""Bash, read without running it: the training commands of a script.

Allocation: nodes, tasks and GPUs that are requested of a scheduler.
COMMAND_LINE: the place of what is in no file.
Host: what starts a script within a file of another kind.
Launch: one training command, what every rank runs and on how many of them.
launch_of_command: that of the words of one command.
launches_of_script: the training commands of a script.
number: the count in a word, where it is known.
Place: file and line of something.
Problem: one thing that is wrong, ignored or unread.
way_to_state: how to state what is known to a run alone.
Verdict: which of these a problem is.
Word: one word of a command after expansion, with its place.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.shell.launch import (
        COMMAND_LINE,
        Launch,
        Place,
        Problem,
        Verdict,
        Word,
        number,
        way_to_state,
    )
    from trainplan.planner.shell.launches import Host, launch_of_command, launches_of_script
    from trainplan.planner.shell.slurm import Allocation
else:
    __getattr__ = door(__name__)
