"""Launches as a reader of scripts would hand them over, for the tests of what is read of them."""

from trainplan.planner.launch.config import LaunchConfig, UserVariable
from trainplan.planner.shell import COMMAND_LINE, Launch, Word


def word(text: str) -> Word:
    """A word of a command line; one with a dollar is known to a run alone."""
    names = (text.strip("${}"),) if text.startswith("$") else ()
    return Word(text, COMMAND_LINE, names)


def launch(
    flags, environment=None, program="pretrain_gpt.py", starter="torchrun", **fields
) -> Launch:
    """Of flags as one text."""
    words = tuple(map(word, flags.split() if isinstance(flags, str) else flags))
    variables = {name: word(text) for name, text in (environment or {}).items()}
    return Launch(
        starter, word(program), is_module=False, arguments=words, environment=variables, **fields
    )


def launch_of(config: LaunchConfig) -> Launch:
    """The launch that an export is."""
    words = []
    for argument in config.arguments:
        texts = (f"${v.name}" if isinstance(v, UserVariable) else v for v in argument.values)
        words += [argument.flag, *texts]
    return launch(words, {one.name: one.value for one in config.environment})
