"""Streams, width, time limit and progress of a command.

A name is imported when it is first used, so that `plan --help` stays quick.

bug_line: an error of ours, in a line.
Clock: the time limit and the progress of a search, since the command began.
command_seconds: how long this process runs.
escaped: a text that cannot steer the terminal.
get_completion_class: how a shell is given completions.
imported_on_answer: imports in this block wait until the command answers.
is_terminal: does the answer go to a terminal?
json_line: a document on a line.
json_text: a document as it is printed and stored.
LISTENER: who receives an answer in place of the terminal.
load: imports what a module has waiting.
named: what `package.module:name` is, imported now.
one_line: a refusal in a line.
OWN_PROCESS: is this process there for one command?
page_width: columns of a page.
progress_text: what is known so far of a search.
remark: writes a line to stderr.
shell_complete: answers a shell that requests completions.
show_json: prints a document.
TaskBar: a bar for tasks that another process reports.
watched: items, with a bar that counts those taken.
WIDEST: the most columns of a page.
WIDTH: those of a page where there is no terminal.
write: writes to stdout at once.
write_page: the same, what the stream lacks of its signs drawn with ASCII.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.terminal.age import OWN_PROCESS, command_seconds
    from trainplan.cli.terminal.clock import Clock, progress_text
    from trainplan.cli.terminal.completion import get_completion_class, shell_complete
    from trainplan.cli.terminal.lazily import imported_on_answer, load, named
    from trainplan.cli.terminal.listener import LISTENER
    from trainplan.cli.terminal.output import (
        is_terminal,
        json_line,
        json_text,
        page_width,
        remark,
        show_json,
        write,
        write_page,
    )
    from trainplan.cli.terminal.progress import TaskBar, watched
    from trainplan.cli.terminal.refusals import bug_line, one_line
    from trainplan.cli.terminal.text import WIDEST, WIDTH, escaped
else:
    __getattr__ = door(__name__)
