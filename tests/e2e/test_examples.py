"""Every example runs as its README says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/command.sh"))
SHIM = f"""#!/usr/bin/env bash
[[ "$1" != search ]] || set -- "$@" $LIMIT $WORKERS
[[ "$1" != check ]] || set -- "$@" $LIMIT
exec {sys.executable} -c "from trainplan.cli.main import main; main()" "$@"
"""


@pytest.fixture
def environment(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """A PATH on which `plan` is this checkout's; without `--full`, no search goes to its end."""
    full, programs = request.config.getoption("--full"), tmp_path / "bin"
    programs.mkdir()
    (programs / "plan").write_text(SHIM)
    (programs / "plan").chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / ".editable"),
        "LIMIT": "" if full else "--time-limit 1",
        "WORKERS": "" if full else "--workers 1",
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example: Path, tmp_path: Path, environment: dict[str, str]):
    copy = tmp_path / example.name
    shutil.copytree(example, copy, ignore=shutil.ignore_patterns("out"))
    done = subprocess.run(
        ["bash", copy / "command.sh"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
    scripts = list((copy / "out").glob("*/run.*"))
    assert scripts
    for script in scripts:
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_every_example_has_a_readme_that_names_its_command():
    assert len(EXAMPLES) >= 3
    for example in EXAMPLES:
        assert "./command.sh" in (example / "README.md").read_text()
