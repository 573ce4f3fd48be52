"""Launches in scripts and command lines of the shell, read without running anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainplan.planner.shell.commands import Commands, Reads
from trainplan.planner.shell.launch import COMMAND_LINE, Launch, Place
from trainplan.planner.shell.lexer import Lexer, Token
from trainplan.planner.shell.slurm import Allocation, directives
from trainplan.planner.shell.variables import Piece, Variables
from trainplan.planner.shell.walk import Walk
from trainplan.planner.shell.words import Part, ShellError, Source, refuse, source_of

__all__ = ["Host", "ShellError", "launch_of_command", "launches_of_script"]

_SOUGHT = "torchrun, deepspeed, accelerate launch or python, bare or behind srun, mpirun or others"


def _nothing(name: str) -> None:
    """Opens no file."""


@dataclass(frozen=True, slots=True)
class Host:
    """What starts a script or a command that stands in a file of another kind."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """That it sets."""
    job: Allocation = field(default_factory=Allocation)
    """That it allots."""
    assumed: frozenset[str] = frozenset()
    """Of the variables, those that rest on a default of what starts it."""
    first: int | None = 1
    """Line of its file on which the text begins; null: not known."""
    read: Reads = _nothing
    """Opens files that stand beside the script."""


NOBODY = Host()


def launches_of_script(
    text: str, file: str | None, settings: Mapping[str, str], host: Host = NOBODY
) -> tuple[Launch, ...]:
    """All launches of a script, in its order, with what of the script could not be read.

    `settings` are variables and arguments (`1`, `2`) as if given to the script; they also stand for
    what it sets in a way that only a run would tell. Beside them the environment is empty. `read`
    opens the files that it names, where they stand beside it.

    Raises:
        ShellError: no shell would take the text, or it has no launch.
    """
    source = source_of(text, file)
    if host.first != 1:
        behind = None if host.first is None else host.first - 1
        lines = [None if behind is None else behind + (p.line or 0) for p in source.places]
        source = Source(source.text, source.starts, [Place(file, line) for line in lines])
    job, under_slurm, problems = directives(source.text, file)
    variables = _variables(settings, host, job)
    for name in ("0", "BASH_SOURCE") if file else ():
        variables.held[name] = (Piece(file or "", Place(file, 1)),)
    commands = Commands(variables, job.over(host.job), host.read, under_slurm=under_slurm)
    commands.problems += problems
    walk = Walk(commands)
    walk.run(Lexer(source).tokens())
    if not commands.launches:
        refuse(Place(file, None), f"no launch: looked for {_SOUGHT}" + _instead(walk))
    return tuple(commands.launches)


def launch_of_command(
    words: Sequence[str], settings: Mapping[str, str], host: Host = NOBODY
) -> Launch:
    """The launch that a command is, its words as the shell of the user has split them.

    Raises:
        ShellError: it is no launch.
    """
    variables = _variables(settings, host, Allocation())
    commands = Commands(variables, host.job, host.read, under_slurm=False)
    walk = Walk(commands)
    walk.run([_quoted(word) for word in words])
    if not commands.launches:
        raise ShellError(f"the command starts no training: looked for {_SOUGHT}" + _instead(walk))
    return commands.launches[0]


def _variables(settings: Mapping[str, str], host: Host, job: Allocation) -> Variables:
    """Those that are set before the first command."""
    held = {
        name: (Piece(text, COMMAND_LINE, fallback=name in host.assumed),)
        for name, text in host.variables.items()
    }
    variables = Variables(settings, {**held, **job.variables()})
    variables.exported.update(held)
    return variables


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
