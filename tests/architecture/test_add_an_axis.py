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


def consistency(folder):
    """What the tests of axes say in a copy of the tree, of the new axis and of all together."""
    chosen = f"{NAME} or together or varies or somewhere"
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", chosen, "tests/architecture/test_axes.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / ".editable"), str(folder)))},
        check=False,
    )


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
    return folder


def test_the_page_touches_at_most_six_files():
    assert len(FILES) <= 6


def test_an_axis_is_added_as_the_page_says(copy):
    done = consistency(copy)
    assert done.returncode == 0, done.stdout
    assert re.search(r"(\d+) passed", done.stdout)


def searched(folder):
    """A plan in a copy of the tree, with the axis at one of its values; null: there is none."""
    env = os.environ | {"PYTHONPATH": str(folder / ".editable")}
    done = subprocess.run(
        (sys.executable, "-c", SEARCH),
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_an_axis_that_is_tried_is_searched(copy):
    """The one word of the page makes it a column of the search, with no other edit."""
    path = copy / AXIS
    held = path.read_text("utf-8")
    tried = re.sub(r"^    search=Held\(\n.*?^    \),\n", f"    {TRIED}\n", held, flags=re.M | re.S)
    assert searched(copy) is None
    try:
        path.write_text(tried.replace("Held", "Tried"), "utf-8")
        assert consistency(copy).returncode == 0
        answer = searched(copy)
    finally:
        path.write_text(held, "utf-8")
    assert answer["best"]["layout"][NAME] == 8
    assert answer["certificate"]["space"][NAME] == [1, 8]


@pytest.mark.parametrize("file", FILES)
def test_an_edit_that_is_left_out_is_told(copy, file):
    path = copy / file
    kept = path.read_text("utf-8")
    original = ROOT / file
    try:
        if original.exists():
            shutil.copy2(original, path)
        else:
            path.unlink()
        done = consistency(copy)
    finally:
        path.write_text(kept, "utf-8")
    assert done.returncode != 0
    named = {
        "costmodel/traffic/data_parallel.py": f"no formula and no rule reads {NAME}",
        AXIS: "No module named 'trainplan.costmodel.axes.sync_period'",
    }
    assert named.get(file, file) in done.stdout, done.stdout
