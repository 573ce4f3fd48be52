"""The hosts of the catalog, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks.screen import Part
from trainplan.cli.blocks.tables import number, table
from trainplan.cli.pages.catalog import Entry
from trainplan.costmodel.catalog import SourcedDrives, SourcedHost, host, hosts
from trainplan.costmodel.spec import Sourced

WORDS = {
    "memory_gib": "memory, GiB",
    "memory_gb_per_s": "memory, GB/s",
    "adam_params_per_s": "Adam, parameters/s",
    "gpus_per_switch": "GPUs on one link",
    "count": "drives",
    "tb": "each drive, TB",
    "read_gb_per_s": "each drive reads, GB/s",
    "write_gb_per_s": "each drive writes, GB/s",
    "tb_written": "each drive's life, TB written",
}
"""What the page calls a figure."""


def hosts_page() -> Iterator[Part]:
    """Every host with its figures and their sources."""
    for name in hosts():
        yield Text(name, style="bold")
        rows = ((WORDS[key], f"{one.value:,g}", one.source) for key, one in _figures(host(name)))
        yield table("", ("figure", number("value"), "source"), rows)
    yield (
        "In a cluster file `host: {like: NAME}`, with figures of your own beside it; in the short "
        "form 1x8:h100-sxm@dgx-h100. What is not listed is not known, and not checked."
    )


def host_entry(name: str) -> Entry:
    """One host as JSON."""
    return {"name": name, **host(name).model_dump(mode="json")}


def _figures(one: SourcedHost | SourcedDrives) -> Iterator[tuple[str, Sourced]]:
    for key in type(one).model_fields:
        value = getattr(one, key)
        if isinstance(value, SourcedDrives):
            yield from _figures(value)
        elif value is not None:
            yield key, value
