"""Configurations and commands that no other reader takes: whose they are, what can be done."""

from trainplan.planner.formats import FORMATS, command_keys, format_of
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.shell import Launch, Problem

INSTEAD = "it is not read: give what it says to `plan search`, or the command that it starts"


def _name(launch: Launch) -> str:
    """Of the format: of a configuration alone, or of a command."""
    if launch.document:
        return launch.format
    words = (word.text for word in launch.arguments)
    return format_of(command_keys(launch.program.text, words))


def recognises(launch: Launch) -> bool:
    """Is it of a format that is known?"""
    return _name(launch) in FORMATS


def read(launch: Launch, request: Request) -> Reading:
    """Nothing of a job: the format by its name."""
    name = _name(launch)
    one = FORMATS[name]
    says = f"{launch.program.text} is {one.title}: {one.instead or INSTEAD}"
    problem = Problem("foreign_format", "unread", says, launch.program.place)
    return Reading(name, "", None, None, (), (*launch.problems, problem))


FOREIGN = Reader("foreign", recognises, read)
