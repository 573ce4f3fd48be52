"""One training command, whatever starts it.

Argument: one option of the runtime's command line.
assigned: a key of a configuration with its value, in one word.
ConfigFile: a file that the runtime reads, written next to the script.
DefaultVariable: a variable of the script that the user may set before.
EntryPoint: the program every rank runs.
EnvironmentVariable: a variable the launch script sets before it starts the runtime.
Group: what an option is about, under which a script lists it.
LaunchConfig: one training command of one runtime.
ModuleEntry: the program every rank runs.
one_line: text that cannot leave its comment.
Operations: what a launcher does to keep a long run going.
option: an option with its values.
PLACEHOLDER_STEPS: optimizer steps where the job names no number of tokens.
RequiredVariable: a variable the user must set.
steps_of: optimizer steps of the whole run, or a placeholder, which needs a note.
summary: what is started, for the head of a file.
switch: an option without a value.
UserVariable: a value that only the user knows.
Value: of an argument.
"""

from trainplan.planner.launch.config import (
    PLACEHOLDER_STEPS,
    Argument,
    ConfigFile,
    DefaultVariable,
    EntryPoint,
    EnvironmentVariable,
    Group,
    LaunchConfig,
    ModuleEntry,
    Operations,
    RequiredVariable,
    UserVariable,
    Value,
    assigned,
    one_line,
    option,
    steps_of,
    summary,
    switch,
)
