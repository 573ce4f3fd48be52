"""Commands, one file each.

To add one: write its file, with options, help page and what answers, and one line in `registry`.
`cli.commands.x` is imported when `plan x` is typed, and what it has in `imported_on_answer` when it
answers, so `plan --help` waits for no command, `plan x --help` not for numpy.

COMMANDS: name of each command and how `plan --help` sums it up.
COMPLETE: the variable by which a shell requests completions.
QUESTIONS: the same commands below the headings of `plan --help`.
is_of_plugin: is an error a plug-in's? Gives whose, and how to see where.
plugged: commands that plug-ins add, by name.
plugged_command: one of them, imported.
say_warnings: prints in a line what is left out of plug-ins.
"""

from trainplan.cli.commands.plugged import is_of_plugin, plugged, plugged_command, say_warnings
from trainplan.cli.commands.registry import COMMANDS, COMPLETE, QUESTIONS
