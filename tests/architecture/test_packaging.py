"""What an installation brings, and what starting the command loads."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
PACKAGES = {"cli", "planner", "profiler", "costmodel"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        yield archive


def names(wheel):
    return [name for name in wheel.namelist() if ".dist-info/" not in name]


def test_top_level_names_are_our_packages(wheel):
    assert {name.partition("/")[0] for name in names(wheel)} == PACKAGES


def test_packages_are_typed(wheel):
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names(wheel))


def test_data_files_are_packed(wheel):
    kinds = {".toml", ".json", ".yaml"}
    data = [path for package in PACKAGES for path in (ROOT / package).rglob("*")]
    expected = {path.relative_to(ROOT).as_posix() for path in data if path.suffix in kinds}
    assert expected
    assert expected <= set(names(wheel))


def test_command_and_license_are_declared(wheel):
    texts = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "plan = cli.main:main" in wheel.read(texts["entry_points.txt"]).decode()
    assert "Apache License" in wheel.read(texts["LICENSE"]).decode()


@pytest.mark.parametrize("arguments", ["['--help']", "['search', '--help']"])
def test_starting_loads_neither_torch_nor_a_solver(arguments):
    code = (
        "import sys, cli.main\n"
        f"cli.main.run({arguments})\n"
        "heavy = ('torch', 'pulp', 'highspy', 'ortools', 'scipy')\n"
        "sys.exit(any(name in sys.modules for name in heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
