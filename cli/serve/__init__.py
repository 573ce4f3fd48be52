"""A server that other programs ask: each call is a command, in a process of its own.

`requests` says what may be asked (`fields` and `job_request` what of it several share, `tools`
which command answers it), `command_line` how it is typed, `work` runs the command, `calls` starts,
follows and ends its process, `shown` keeps an answer within bounds, `lines` reads messages,
`server` answers them.

Limits: what a call may take.
TOOLS: what may be asked, by name.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.serve.calls import Limits
    from trainplan.cli.serve.tools import TOOLS
else:
    __getattr__ = door(__name__)
