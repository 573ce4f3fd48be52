"""Reference of profiles: what is measured, what a file holds, what can be imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import get_args

from page_parts import Lines, documented, table

from costmodel.spec import profile
from profiler.bench import ITEMS
from profiler.importers import IMPORTERS

PARTS: Sequence[tuple[str, str, type]] = (
    ("origins[]", "Who measured, and when.", profile.Origin),
    ("hosts[]", "The nodes.", profile.Host),
    ("software", "Versions.", profile.Software),
    ("failures[]", "What was asked for and not measured.", profile.Failure),
    ("a timing", "Every time of a point.", profile.Timing),
)
FIELDS = {
    "Timing.repeats": "Calls, or blocks of calls, that were timed.",
    "Timing.flags": "What is wrong: `noisy`, `drift`, `outliers`, `throttled`, `stated`.",
    "Timing.slowest_rank": "The rank that was slowest most often.",
}


def profile_page() -> Lines:
    """Items, keys, points and importers."""
    yield from ("# Profiles", "")
    yield f"A file of `plan profile`: schema `{profile.SCHEMA}`, one point a line, all times in"
    yield "seconds, all sizes in bytes. [JSON Schema](profile.schema.json). Commands take it as"
    yield "`--profile`, or as `--cluster`: machine and measurements together. How to make one:"
    yield "[measure your machines](../how-to/measure-your-machines.md)."
    yield from ("", "## What is measured", "")
    yield "In this order; `--only NAME` chooses."
    yield ""
    yield from table(("item", "measures"), ((f"`{i.name}`", i.what) for i in ITEMS.values()))
    yield from ("", "## What can be imported", "")
    yield "`plan import FORMAT FILE... --gpu GPU --output profile.json`; whole steps of a log or a"
    yield "trace of the torch profiler go to `plan calibrate --log`."
    yield ""
    rows = ((f"`{one.name}`", one.reads) for one in IMPORTERS.values())
    yield from table(("format", "reads"), rows)
    yield from ("", "## The document", "")
    yield from table(("key", "meaning"), _fields(profile.Profile))
    for path, text, owner in PARTS:
        yield from (f"### {path}", "", text, "", *table(("key", "meaning"), _fields(owner)))
    yield from ("## Points", "")
    yield "`kind` tells which; identity of a point is all of it but its times and results."
    yield ""
    for owner in get_args(get_args(profile.Point)[0]):
        kinds = " or ".join(f"`{kind}`" for kind in get_args(owner.model_fields["kind"].annotation))
        about = (owner.__doc__ or "").split("\n")[0]
        yield from (f"### {kinds}", "", about, "", *table(("key", "meaning"), _fields(owner)))


def schema_text() -> str:
    """The published JSON Schema."""
    schema = profile.Profile.model_json_schema()
    schema["properties"] = {
        "schema": {"const": profile.SCHEMA, "type": "string"},
        **schema["properties"],
    }
    schema["required"] = ["schema", *schema["required"]]
    return json.dumps(schema, indent=1) + "\n"


def _fields(owner: type) -> Iterator[tuple[str, str]]:
    for name, docstring in documented(owner):
        if name != "kind":
            text = docstring or FIELDS.get(f"{owner.__name__}.{name}", "")
            yield f"`{name}`", text or name.replace("_", " ").capitalize() + "."
