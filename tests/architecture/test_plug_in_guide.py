"""The blocks of the guide to plug-ins are the files of the example, and it tells of every kind."""

import re
from dataclasses import fields
from pathlib import Path

from trainplan.costmodel.plugins.plugins import KINDS, Plugin

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plug-in"
GUIDE = (ROOT / "docs" / "how-to" / "extend-with-a-plug-in.md").read_text(encoding="utf-8")


def test_every_file_of_the_example_stands_in_the_guide_as_it_is():
    blocks = dict(re.findall(r"\n`([\w./-]+)`:\n\n```\w+\n(.*?)```", GUIDE, re.DOTALL))
    kinds = {".py", ".toml", ".json"}
    files = [path for path in EXAMPLE.rglob("*") if path.suffix in kinds]
    texts = {path.relative_to(EXAMPLE).as_posix(): path.read_text("utf-8") for path in files}
    assert blocks == texts


def test_the_guide_tells_of_every_field_of_a_plug_in():
    table = GUIDE.split("## What a `Plugin` may hold")[1].split("\n## ")[0]
    first = "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    stated = set(re.findall(r"`(\w+)`", first))
    assert stated == {field.name for field in fields(Plugin)}
    assert set(KINDS) < stated
