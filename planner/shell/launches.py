"""Launches in scripts and command lines of the shell, read without running anything."""

from collections.abc import Mapping, Sequence

from trainplan.planner.shell.commands import Commands
from trainplan.planner.shell.launch import COMMAND_LINE, Launch, Place
from trainplan.planner.shell.lexer import Lexer, Token
from trainplan.planner.shell.slurm import Allocation, directives
from trainplan.planner.shell.variables import Variables
from trainplan.planner.shell.walk import Walk
from trainplan.planner.shell.words import Part, ShellError, refuse, source_of

__all__ = ["ShellError", "launch_of_command", "launches_of_script"]

_SOUGHT = "torchrun, deepspeed, accelerate launch or python, bare or behind srun, mpirun or others"


def launches_of_script(
    text: str, file: str | None, settings: Mapping[str, str]
) -> tuple[Launch, ...]:
    """All launches of a script, in its order, with what of the script could not be read.

    `settings` are variables and arguments (`1`, `2`) as if given to the script; they also stand for
    what it sets in a way that only a run would tell. Beside them the environment is empty.

    Raises:
        ShellError: no shell would take the text, or it has no launch.
    """
    source = source_of(text, file)
    job, under_slurm, problems = directives(source.text, file)
    variables = Variables(settings, job.variables())
    commands = Commands(variables, job, under_slurm=under_slurm)
    commands.problems += problems
    walk = Walk(commands)
    walk.run(Lexer(source).tokens())
    if not commands.launches:
        refuse(Place(file, None), f"no launch: looked for {_SOUGHT}" + _instead(walk))
    return tuple(commands.launches)


def launch_of_command(words: Sequence[str], settings: Mapping[str, str]) -> Launch:
    """The launch that a command is, its words as the shell of the user has split them.

    Raises:
        ShellError: it is no launch.
    """
    commands = Commands(Variables(settings), Allocation(), under_slurm=False)
    walk = Walk(commands)
    walk.run([_quoted(word) for word in words])
    if not commands.launches:
        raise ShellError(f"the command starts no training: looked for {_SOUGHT}" + _instead(walk))
    return commands.launches[0]


def _quoted(word: str) -> Token:
    """A word that no shell changes any more; `NAME=value` may still stand before the command."""
    return Token(
        "word", "", COMMAND_LINE, (Part("text", word, word, COMMAND_LINE, quoted="=" not in word),)
    )


def _instead(walk: Walk) -> str:
    """What there is instead of a launch."""
    if walk.stops is not None:
        return f"; the script ends at line {walk.stops.line}"
    if walk.commands.scripts:
        other = walk.commands.scripts[0]
        line = "" if other.place.line is None else f" (line {other.place.line})"
        return f"; it runs {other.text}{line}: name that file"
    return "; name the script or the command that has it"
