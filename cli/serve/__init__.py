"""A server that other programs call: each call is a command, in a process of its own.

`requests` has what may be called (`fields` and `job_request` what of it several share, `tools`
which command answers it), `command_line` how it is typed (`inline` a value of it, for programs
too), `work` runs the command, `calls` starts,
follows and ends its process, `shown` keeps an answer within bounds, `lines` reads messages,
`server` answers them.

filed: the file of a document that is given inline.
Limits: what a call may take.
invoke: runs a command.
option_words: a value as the option of its name.
PLAN: the command line, by name.
TOOLS: what may be called, by name.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.serve.inline import PLAN, filed, invoke, option_words
    from trainplan.cli.serve.tools import TOOLS
    from trainplan.cli.serve.work import Limits
else:
    __getattr__ = door(__name__)
