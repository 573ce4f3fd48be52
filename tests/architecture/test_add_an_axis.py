"""The page on a new axis is followed to the letter, then with one of its edits left out."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-an-axis.md"
BLOCK = re.compile(r"^```diff\n\+\+\+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EDITS = BLOCK.findall(PAGE.read_text("utf-8"))
FILES = tuple(dict.fromkeys(file for file, _ in EDITS))
NAME = "sync_period"
AXIS = "costmodel/axes/sync_period.py"
TRIED = re.search(r"`(search=Tried\(.*?,)`", PAGE.read_text("utf-8"))[1]
SEARCH = f"""
import json
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.presets import preset
from trainplan.planner import plan_json, search
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.space import parse_choice
training = TrainingSpec(seq_length=1024, global_batch_size=4)
cluster = parse_cluster("1x4:h100-sxm")
job = Job(model=preset("gpt2"), training=training, cluster=cluster, runtime="torchtitan")
held = parse_choice("{NAME}=8", excluded=False)
# no exporter writes it: the page ends with that
found = search(job, SearchOptions(fix=(held,), only_written=False, search_options="none"))
print(json.dumps(plan_json(found) if isinstance(found, Plan) else None))
"""


def edited(text, block):
    """A text with a block of the page: lines with - go, lines with + come."""
    lines = block.splitlines()
    before = "\n".join(line[1:] for line in lines if line[:1] != "+")
    after = "\n".join(line[1:] for line in lines if line[:1] != "-")
    assert text.count(before) == 1 or not text, before
    return text.replace(before, after) if text else after + "\n"


def follow(folder, file):
    """Make what the page says of one file in a copy of the tree."""
    path = folder / file
    text = path.read_text("utf-8") if path.exists() else ""
    for place, block in EDITS:
        if place == file:
            text = edited(text, block)
    path.write_text(text, "utf-8")


@pytest.fixture(scope="module", name="run")
def _run(copy):
    """Run a command line in the copy, in a fork of one process: its exit code and its lines."""
    paths = os.pathsep.join((str(copy / ".editable"), str(copy)))
    output = copy / "output.txt"
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("forks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=copy,
        env=os.environ | {"PYTHONPATH": paths},
    ) as forks:

        def run(*words):
            forks.stdin.write(json.dumps([str(output), *words]) + "\n")
            forks.stdin.flush()
            return int(forks.stdout.readline()), output.read_text("utf-8")

        yield run
        forks.stdin.close()


@pytest.fixture(scope="module", name="consistency")
def _consistency(run):
    """What the tests of axes find in the copy, of the new axis and of all together."""
    chosen = f"{NAME} or together or varies or somewhere"
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what forks.py imports
    words = ["pytest", *options, "-k", chosen, "tests/architecture/test_axes.py"]
    return lambda: run(*words)


@pytest.fixture(scope="module", name="copy")
def _copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    for package in (".editable", "cli", "costmodel", "planner", "profiler"):
        shutil.copytree(ROOT / package, folder / package, symlinks=True)
    for name in (
        "pyproject.toml",
        "tests/conftest.py",
        "tests/fractions.py",
        "tests/grids.py",
        "tests/architecture/test_axes.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for file in FILES:
        follow(folder, file)
    (folder / "search.py").write_text(SEARCH, "utf-8")
    return folder


def test_the_page_touches_at_most_six_files():
    assert len(FILES) <= 6


def test_an_axis_is_added_as_the_page_describes(consistency):
    code, lines = consistency()
    assert code == 0, lines
    assert re.search(r"(\d+) passed", lines)


@pytest.fixture(scope="module", name="searched")
def _searched(run):
    """Search for a plan in the copy, with the axis at one of its values; null: there is none."""

    def searched():
        code, lines = run("search.py")
        assert code == 0, lines
        return json.loads(lines)

    return searched


def test_an_axis_that_is_tried_is_searched(copy, consistency, searched):
    """The one word of the page makes it a column of the search, with no other edit."""
    path = copy / AXIS
    held = path.read_text("utf-8")
    tried = re.sub(r"^    search=Held\(\n.*?^    \),\n", f"    {TRIED}\n", held, flags=re.M | re.S)
    assert searched() is None
    try:
        path.write_text(tried.replace("Held", "Tried"), "utf-8")
        code, lines = consistency()
        assert code == 0, lines
        answer = searched()
    finally:
        path.write_text(held, "utf-8")
    assert answer["best"]["layout"][NAME] == 8
    assert answer["certificate"]["space"][NAME] == [1, 8]


@pytest.mark.parametrize("file", FILES)
def test_an_edit_that_is_left_out_is_named(copy, consistency, file):
    path = copy / file
    kept = path.read_text("utf-8")
    original = ROOT / file
    try:
        if original.exists():
            shutil.copy2(original, path)
        else:
            path.unlink()
        code, lines = consistency()
    finally:
        path.write_text(kept, "utf-8")
    assert code != 0
    named = {
        "costmodel/traffic/data_parallel.py": f"no formula and no rule reads {NAME}",
        AXIS: "No module named 'trainplan.costmodel.axes.sync_period'",
    }
    assert named.get(file, file) in lines, lines
