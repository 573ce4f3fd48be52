"""NOTICE names every source of the data that stand here, with its licence."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "costmodel", "examples", "planner", "profiler", "tests")
KINDS = {".toml", ".json", ".jsonl", ".csv", ".yaml"}
OWNER = r"[A-Za-z0-9][\w.-]*/[\w.-]*\w"
NAMED = (
    rf"github\.com/({OWNER})",
    rf'"repo(?:sitory)?": "({OWNER})',
    rf"(?<![\w/.-])({OWNER})@[0-9a-f]{{7,40}}\b",
    rf"(?m)^[\w.-]+,({OWNER}),",  # published_runs.csv
)
"""How data files name the repository they are from."""
NOTICE = (ROOT / "NOTICE").read_text("utf-8")
ENTRIES = {
    match[1]: match[0] for match in re.finditer(r"(?ms)^\* (\S+) \(.*?(?=^\* |^\w|\Z)", NOTICE)
}
"""By repository; each entry names the licence in brackets, and files or folders."""


def repositories(text):
    return {name.removesuffix(".git") for way in NAMED for name in re.findall(way, text)}


def unnamed():
    """(file, repository) that no entry tells of."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS:
                file = path.relative_to(ROOT).as_posix()
                for name in repositories(path.read_text("utf-8")):
                    if not any(part in ENTRIES.get(name, "") for part in above(file)):
                        yield file, name


def above(file):
    """The file, and the folders that hold it below the first."""
    parts = file.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts) + 1)]


def test_every_repository_a_data_file_names_is_there_with_that_file():
    assert list(unnamed()) == []


def test_a_repository_is_found_however_a_file_names_it():
    for text in (
        'source = "https://github.com/owner/name.git"',
        '"repo": "owner/name", "commit": "0123abc"',
        "fit to measurements, owner/name@0123abc (MIT)",
        "some-run,owner/name,GPT-3,1.5",
    ):
        assert repositories(text) == {"owner/name"}


def test_every_file_it_names_exists():
    files = re.findall(r"\b((?:costmodel|planner|examples|tests)/[\w./-]*\w)", NOTICE)
    assert files
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_what_a_report_embeds_is_named():
    assert {"plotly/plotly.js", "ai-dynamo/aiconfigurator"} <= set(ENTRIES)
