"""Options of the programs that start training, apart from those of the program they start."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources

from trainplan.planner.shell.launch import Problem, Word, way_to_state


@dataclass(frozen=True, slots=True)
class Options:
    """Names without leading dashes, `_` for `-`."""

    flags: frozenset[str]
    """Without a value; any other takes one."""
    valued: frozenset[str]
    short: dict[str, str]


@dataclass(frozen=True, slots=True)
class Split:
    """A command in three."""

    given: dict[str, Word]
    """By name; of a repeated option, the last value, as argparse has it."""
    others: tuple[Word, ...]
    """Words of the starter that do not count nodes or ranks."""
    program: Word | None
    is_module: bool
    arguments: tuple[Word, ...]
    problems: tuple[Problem, ...]


def names(text: str) -> frozenset[str]:
    """Names between blanks."""
    return frozenset(text.split())


COUNTS = names(
    "nnodes nproc_per_node num_nodes num_gpus num_accelerators num_machines num_processes"
)

TABLE = tomllib.loads(resources.files(__package__).joinpath("starters.toml").read_text("utf-8"))
"""Of this folder, with its sources."""
OPTIONS = {
    name: Options(names(of["flags"]), names(of["valued"]), of["short"])
    for name, of in TABLE["starters"].items()
}
PROGRAMS = {kind: names(of) for kind, of in TABLE["programs"].items()}


def split(words: Sequence[Word], options: Options) -> Split:
    """What follows the name of a starter."""
    given: dict[str, Word] = {}
    others: list[Word] = []
    problems: list[Problem] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word.unresolved and word.text[:1] != "-" and _more_to_come(words[at + 1 :]):
            says = f"what {word.text} gives the starter is known only in a run: "
            says += f"give it {way_to_state(word.unresolved)}"
            problems.append(Problem("starter_unread", "unread", says, word.place))
            others.append(word)
            at += 1
            continue
        if word.text[:1] != "-" or word.text == "-":
            break
        at += 1
        if word.text == "--":
            break
        name, value = _named(word, options)
        taken = [word]
        if name in options.flags:
            given[name] = word
        elif value is None and at < len(words):
            value, at = words[at], at + 1
            taken.append(value)
        if value is not None:
            given[name] = value
        others += () if name in COUNTS else taken
        if options.valued and name not in options.flags | options.valued:
            says = f"no option {word.text.partition('=')[0]} of the starter: leave it out"
            problems.append(Problem("starter_option_unknown", "illegal", says, word.place))
    program = words[at] if at < len(words) else None
    arguments = tuple(words[at + 1 :])
    if not _is_program(program, given):  # perhaps a value, and its line was not read
        problems = [replace(one, verdict="unread") for one in problems]
    return Split(given, tuple(others), program, "module" in given, arguments, tuple(problems))


def _is_program(word: Word | None, given: Mapping[str, Word]) -> bool:
    """Is it surely a program, by its ending or by an option that says so?"""
    return bool({"module", "no_python"} & given.keys()) or (
        word is not None and bool(word.unresolved or word.text.endswith((".py", ".sh")))
    )


def _named(word: Word, options: Options) -> tuple[str, Word | None]:
    """An option's name in full, and the value that is written in the same word."""
    text, equals, value = word.text.partition("=")
    of_it = replace(word, text=value) if equals else None
    if not text.startswith("--"):
        letter, rest = text[1:2], word.text[2:]
        if letter in options.short:
            joined = replace(word, text=rest) if rest else None
            return options.short[letter], joined
        return text[1:], of_it
    name = text.lstrip("-").replace("-", "_")
    known = options.flags | options.valued
    if name not in known and options.valued:
        longer = [full for full in known if full.startswith(name)]
        name = longer[0] if len(longer) == 1 else name
    return name, of_it


def _more_to_come(words: Sequence[Word]) -> bool:
    """Does the program still follow a word of the starter that is not known?"""
    for at, word in enumerate(words):
        if word.text.endswith(".py") and not word.text.startswith("-"):
            return True
        if word.text in ("-m", "--module"):
            return at + 1 < len(words)
    return False
