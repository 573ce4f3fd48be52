"""User-facing text has the words of the field: .ci/words.toml, docs/start/style.md."""

import importlib.util
import re
from itertools import accumulate
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def module():
    spec = importlib.util.spec_from_file_location("prose", ROOT / ".ci" / "prose.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


prose = module()
PAIR = re.compile(r"^\| (?!before|---)(.+?) \| (.+?) \|$", re.MULTILINE)


def words(kind: str, text: str) -> list[tuple[int, str]]:
    return [
        (line, word)
        for part in prose.READS[kind](text)
        for line, word, _ in prose.wrong_words(part)
    ]


@pytest.mark.parametrize("area", range(len(prose.TABLE["areas"])))
def test_every_area_has_text(area):
    one = prose.TABLE["areas"][area]
    files = [path for glob in one["files"] for path in ROOT.glob(glob)]
    texts = (text for path in files for text in prose.READS[one["read"]](path.read_text("utf-8")))
    assert any(length > 1000 for length in accumulate(len(text.prose) for text in texts))


@pytest.mark.parametrize("glob", sorted({g for a in prose.TABLE["areas"] for g in a["files"]}))
def test_every_pattern_of_an_area_has_files(glob):
    assert any(ROOT.glob(glob))


PYTHON = '''"""It says so."""

def told(asked):
    """Beside the rest."""
    return f"{asked} says {told} apart", "asked", "--fix tower=apart `told`"
'''


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (
            "markdown",
            "# A\n\nIt says `told`, [told](told.md).\n\n```\nsays\n```\ntold\n",
            [3, 3, 8],
        ),
        ("changelog", "# C\n\n## Unreleased\n\n* Told.\n\n## 1.0\n\n* Said.\n", [5]),
        ("docstrings", PYTHON, [1, 4]),
        ("strings", PYTHON, [5, 5]),
    ],
)
def test_words_are_reported_with_their_lines(kind, text, expected):
    assert sorted(line for line, _ in words(kind, text)) == expected


def test_what_to_write_stands_in_the_line(monkeypatch):
    areas = [{"read": "markdown", "files": ["docs/start/style.md"]}]
    monkeypatch.setattr(prose, "TABLE", {"allowed": {}, "areas": areas})
    lines = list(prose.wrong())
    assert any(re.match(r"docs/start/style\.md:\d+ 'told': write given, ", x) for x in lines)


@pytest.mark.parametrize(("pattern", "better"), prose.TABLE["prose"].items())
def test_no_replacement_is_itself_such_a_word(pattern, better):
    assert not list(prose.wrong_words(prose.Text(1, better))), pattern


def test_twenty_pairs_show_what_to_write():
    pairs = PAIR.findall((ROOT / "docs" / "start" / "style.md").read_text("utf-8"))
    assert len(pairs) >= 20
    for before, after in pairs:
        assert before != after
        assert not list(prose.wrong_words(prose.Text(1, after))), after


def test_every_allowed_word_is_needed():
    for where, allowed in prose.TABLE["allowed"].items():
        text = (ROOT / where).read_text("utf-8").lower()
        assert all(word in text for word in allowed), where
