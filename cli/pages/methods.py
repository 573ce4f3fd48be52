"""Published methods of offload, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks.screen import Part, headed
from trainplan.cli.pages.catalog import Entry
from trainplan.cli.terminal.text import DOT
from trainplan.costmodel.copy_streams import METHODS, Method, Place
from trainplan.costmodel.runtimes import RUNTIMES

PLACES = {Place.DEVICE: "GPU", Place.HOST: "host", Place.DRIVE: "drives"}


def methods_page() -> Iterator[Part]:
    """Every method: what it does, what it keeps where, who has it."""
    for one in METHODS.values():
        lines = (one.what, _kept(one), _where(one), one.source)
        yield headed(one.name, *(Text(f"  {line}") for line in lines if line))
    yield (
        "Bytes a parameter are those of the publication. Methods that no runtime has are priced "
        "with `--runtime NAME`, and exported by nobody."
    )


def _kept(one: Method) -> str:
    found = {place: one.bytes_per_parameter(place) for place in PLACES}
    return DOT.join(
        f"{PLACES[place]} {size:g} B/parameter" for place, size in found.items() if size
    )


def _where(one: Method) -> str:
    if one.runtime:
        return f"in {one.runtime}"
    return f"priced as a method: --runtime {one.name}" if one.name in RUNTIMES else ""


def method_entry(name: str) -> Entry:
    """One method as JSON."""
    one = METHODS[name]
    return {
        "name": name,
        "what": one.what,
        "runtime": one.runtime,
        "priced_as": name if name in RUNTIMES else None,
        "keeps": [
            {
                "place": PLACES[kept.place],
                "term": kept.term,
                "bytes_per_parameter": kept.bytes_per_parameter,
            }
            for kept in one.keeps
        ],
        "source": one.source,
    }
