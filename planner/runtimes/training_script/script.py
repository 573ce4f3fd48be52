"""Arguments of a training script, by name."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainplan.planner.runtimes.keys import Entry, Notes
from trainplan.planner.runtimes.reading import Origin
from trainplan.planner.shell import Place, Word, number

OFF = ("false", "none", "no", "0", "0.0", "f", "n", "null", "")
"""Values that switch an option off."""
ON = ("true", "1", "yes", "y", "t", "auto", "offload", "offload_disk", "unsloth")
"""Values that switch one on: of recomputation, where its inputs wait, too."""
MIXED, PRECISIONS = "mixed_precision", ("bf16", "fp16")
"""The option that names a precision, and switches of one."""
DEFAULT_PLACE = Place(None, 0)
"""Of words that are not written: what the trainer takes where nothing is."""


class Script(NamedTuple):
    """Arguments of the script that say something of a layout."""

    options: Mapping[str, tuple[Word | None, Word]]
    """Value and option, by name without dashes in front and with underscores; the last of each."""
    more: Mapping[str, tuple[Word, ...]] = {}
    """Every value of an option that has several."""

    def number(self, notes: Notes, *names: str) -> Entry | None:
        """A number of 1 or more; null: none of them is there."""
        for name in names:
            if name not in self.options:
                continue
            value, word = self.options[name]
            count = number(value)
            if count:
                assert value is not None
                return _entry(count, f"--{name} {value.text}", word)
            text = "nothing" if value is None else repr(value.text[:60])
            says = f"--{name} is given {text}, no number of 1 or more that can be read: write one"
            notes.problem("argument_value", "unread", says, word.place)
        return None

    def switch(self, *names: str) -> Entry | None:
        """`--name`, `--name true`, of the first that is there; null: none is."""
        name = next((one for one in names if one in self.options), None)
        if name is None:
            return None
        value, word = self.options[name]
        text = "true" if value is None else value.text.lower()
        on = text in ON
        return _entry(on, f"--{name}", word)

    def enabled(self, name: str) -> Entry | None:
        """`--bf16`, or `--mixed_precision bf16` where no such switch is there; null: neither is.

        Source: huggingface/accelerate utils/dataclasses.py, DeepSpeedPlugin.set_mixed_precision.
        """
        stated = None if {*PRECISIONS} & {*self.options} else self.text(MIXED)
        if stated is None or str(stated.value).lower() not in (*PRECISIONS, *OFF):
            return self.switch(name)
        return stated._replace(value=str(stated.value).lower() == name)

    def text(self, *names: str) -> Entry | None:
        """What the first of them is given, of a switch `true`; null: none is, or a run tells it."""
        for name in names:
            value, word = self.options.get(name, (None, None))
            if word is not None and not (value and value.unresolved):
                text = "true" if value is None else value.text
                return _entry(text, f"--{name} {text[:60]}", word)
        return None

    def words(self, name: str) -> tuple[str, ...]:
        """All values of an option."""
        return tuple(word.text for word in self.more.get(name, ()))


def _entry(value: object, written: str, word: Word) -> Entry:
    origin: Origin = "default" if word.place == DEFAULT_PLACE else "stated"
    return Entry(value, origin, written, None if origin == "default" else word.place)


def script_of(arguments: Sequence[Word]) -> Script:
    """The options of a script."""
    found: dict[str, tuple[Word | None, Word]] = {}
    more: dict[str, tuple[Word, ...]] = {}
    name = ""
    for at, word in enumerate(arguments):
        if not word.text.startswith("--"):
            more[name] = (*more.get(name, ()), word)
            continue
        name, equals, text = word.text[2:].partition("=")
        name = name.replace("-", "_")
        value = Word(text, word.place, word.unresolved) if equals else None
        more[name] = (value,) if value else ()
        if value is None and at + 1 < len(arguments) and arguments[at + 1].text[:2] != "--":
            value = arguments[at + 1]
        found[name] = (value, word)
    return Script(found, more)
