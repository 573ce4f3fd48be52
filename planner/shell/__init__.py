"""Bash, read without running it: the training commands of a script.

Launch: one training command, what every rank runs and on how many of them.
Word: one word of a command after expansion, with its place.
Place: file and line where something stands.
COMMAND_LINE: the place of what stands in no file.
Problem: one thing that is wrong, ignored or unread.
Verdict: which of these a problem is.
number: a count that a word says, where it is known.
ShellError: a script that cannot be read, with its line.
launches_of_script: the training commands of a script.
launch_of_command: that of the words of one command.
"""

from trainplan.planner.shell.launch import (
    COMMAND_LINE,
    Launch,
    Place,
    Problem,
    Verdict,
    Word,
    number,
)
from trainplan.planner.shell.launches import launch_of_command, launches_of_script
from trainplan.planner.shell.source import ShellError
