"""Stand-in until the branch of the shell reader lands."""

from collections.abc import Mapping, Sequence

from trainplan.planner.readers.reading import Launch


def launch_of_command(words: Sequence[str], settings: Mapping[str, str]) -> Launch:
    raise NotImplementedError


def launches_of_script(text: str, file: str, settings: Mapping[str, str]) -> tuple[Launch, ...]:
    raise NotImplementedError
