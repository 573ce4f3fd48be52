"""The notebook of the Python API runs, and prints what is stored in it."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

GENERATOR = Path(__file__).parents[2] / "docs" / "generator"


@pytest.fixture(scope="module")
def notebook():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(GENERATOR))
        yield importlib.import_module("notebook")


def test_the_notebook_prints_what_is_stored():
    command = [sys.executable, str(GENERATOR / "notebook.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ("tp 4: 31.5 s, fits", True),
        ("tp 4: 33.5 s, fits", False),
        ("tp 4: 31.5 s, does not fit", False),
        ("tp 4: 31.5 s", False),
    ],
)
def test_numbers_may_move_a_little_and_words_not(notebook, now, same):
    assert notebook.alike("tp 4: 31.0 s, fits", now) is same


def test_a_cell_that_shows_another_kind_is_told(notebook):
    def book(kind):
        outputs = [{"data": {kind: ""}}]
        return notebook.nbformat.from_dict({"cells": [{"outputs": outputs}]})

    assert list(notebook.complaints(book("image/png"), book("image/png"))) == []
    (found,) = notebook.complaints(book("image/png"), book("text/html"))
    assert "cell 0" in found
