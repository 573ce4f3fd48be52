"""Colours by name, each for the light and the dark theme of a report."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Colour:
    """A colour on the light and on the dark background."""

    light: str
    dark: str


BACKGROUND = Colour("#ffffff", "#14181d")
TEXT = Colour("#1b1f24", "#e6e9ed")


COLOURS: Mapping[str, Colour] = MappingProxyType(
    {
        "@text": TEXT,
        "@quiet": Colour("#59636e", "#9aa4af"),
        "@grid": Colour("#d8dee4", "#343b44"),
        "@background": BACKGROUND,
        "@limit": Colour("#c2211c", "#ff7b72"),
        "@blue": Colour("#1f6feb", "#6cb0ff"),
        "@green": Colour("#1a7f37", "#4cc26a"),
        "@orange": Colour("#b35900", "#f0a042"),
        "@violet": Colour("#8250df", "#b48cff"),
        "@teal": Colour("#0f7b8a", "#4cc4d4"),
        "@pink": Colour("#bf3989", "#f57ec3"),
        "@olive": Colour("#6b6f00", "#c6c94b"),
        "@brown": Colour("#8a5a44", "#d3a188"),
        "@grey": Colour("#6e7781", "#8b949e"),
    }
)
"""Each has at least 4.5:1 to the background of its theme as text, 3:1 as an area; tested."""
