"""Modules that are imported by a bare name have that name for themselves."""

import re
from collections import Counter
from pathlib import Path

from tests.examples import script

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "docs" / "generator", *sorted((ROOT / "examples").iterdir())]
SHARED = {
    name
    for name, count in Counter(p.stem for f in FOLDERS for p in f.glob("*.py")).items()
    if count > 1
}
READERS = [path for top in ("docs", "examples", "tests") for path in (ROOT / top).rglob("*.py")]
SCRIPTS = [path.parent.name for path in sorted((ROOT / "examples").glob("*/run.py"))]


def imported(source):
    """First words of the names that a file imports, one in a line."""
    return re.findall(r"^\s*(?:from|import) (\w+)", source, re.MULTILINE)


def test_no_file_imports_a_name_that_two_folders_have():
    assert {"run"} <= SHARED
    readers = {path: SHARED & set(imported(path.read_text("utf-8"))) for path in READERS}
    assert {path.name: names for path, names in readers.items() if names} == {}


def test_scripts_of_one_name_are_modules_of_their_own():
    found = [script(example) for example in SCRIPTS]
    assert [Path(module.__file__).parent.name for module in found] == SCRIPTS
    assert len(SCRIPTS) == len({module.__name__ for module in found}) >= 3
