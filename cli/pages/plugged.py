"""Which entries of a catalog are from plug-ins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType

from trainplan.cli.blocks.shown import section


def plugged_part(whose: Mapping[str, str]) -> Iterator[RenderableType]:
    """Names, and the plug-in each is from; nothing where there are none."""
    if whose:
        yield section("From plug-ins", *(f"{name}: {who}" for name, who in whose.items()))
