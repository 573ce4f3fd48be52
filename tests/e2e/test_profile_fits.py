"""The example that judges curves by recorded tables runs as its README says."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "profile_fits" / "run.py"


def test_a_folder_that_is_no_checkout_is_answered_in_one_line(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--checkout", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".editable")},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("run.py: error: ")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) in done.stderr


def test_the_readme_names_the_command():
    text = (SCRIPT.parent / "README.md").read_text("utf-8")
    assert "python examples/profile_fits/run.py --checkout" in text
