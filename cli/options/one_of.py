"""An option with a closed set of values: an unknown one is told the nearest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trainplan.costmodel.base import unknown_name

if TYPE_CHECKING:
    Choice = click.Choice[str]
else:
    Choice = click.Choice  # click 8.1 has no type parameter


class OneOf(Choice):
    """One of some names of a kind, which shells complete."""

    def __init__(self, kind: str, names: Sequence[str], further: str = "") -> None:
        """`further` ends the message: where more names come from."""
        super().__init__(names)
        self.kind, self.further = kind, further

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The value itself, which is one of the names."""
        if value in self.choices:
            return str(value)
        hint = f"known: {', '.join(self.choices)}{self.further}"
        message = str(unknown_name(self.kind, str(value), self.choices, hint))
        raise click.BadParameter(message, ctx, param)
