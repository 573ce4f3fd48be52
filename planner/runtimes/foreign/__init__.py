"""Configurations that no other reader takes: whose they are, and what can be done."""

from trainplan.planner.formats import FORMATS
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.shell import Launch, Problem

INSTEAD = "it is not read: give what it says to `plan search`, or the command that it starts"


def recognises(launch: Launch) -> bool:
    """Is it a file of a format that is known?"""
    return launch.format in FORMATS


def read(launch: Launch, request: Request) -> Reading:
    """Nothing of a job: the format by its name."""
    one = FORMATS[launch.format]
    says = f"{launch.program.text} is {one.title}: {one.instead or INSTEAD}"
    problem = Problem("foreign_format", "unread", says, launch.program.place)
    return Reading(launch.format, "", None, None, (), (problem,))


FOREIGN = Reader("foreign", recognises, read)
