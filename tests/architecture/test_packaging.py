"""What an installation brings, and what starting the command loads."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from trainplan.cli.commands.doctor import LIBRARIES

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "examples" / "packaging"
PACKAGES = {"cli", "planner", "profiler", "costmodel"}
DOOR = {"__init__.py": "cli/python/__init__.py", "py.typed": "cli/py.typed"}
"""Files of `trainplan` itself, and what they are in the repository."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        yield archive


def names(wheel):
    """Files of the four packages."""
    door = {f"trainplan/{name}" for name in DOOR}
    return [n for n in wheel.namelist() if ".dist-info/" not in n and n not in door]


def test_the_one_top_level_name_is_ours_and_holds_the_folders_of_the_repository(wheel):
    assert {tuple(name.split("/")[:2]) for name in names(wheel)} == {
        ("trainplan", package) for package in PACKAGES
    }


def test_the_package_itself_is_a_copy_of_the_door_for_programs(wheel):
    for name, path in DOOR.items():
        assert wheel.read(f"trainplan/{name}") == (ROOT / path).read_bytes()


def test_the_wheel_is_small(wheel):
    """An eighth of it is the script that a report embeds, packed closer than a wheel does."""
    assert Path(wheel.filename).stat().st_size < 3.15e6


def test_an_editable_installation_imports_the_folders_of_the_repository():
    links = {link.name: link.resolve() for link in (ROOT / ".editable" / "trainplan").iterdir()}
    door = {name: ROOT / path for name, path in DOOR.items()}
    assert links == {package: ROOT / package for package in PACKAGES} | door


def test_an_editable_installation_has_no_module_of_its_own(tmp_path):
    """One in `site-packages` would hide the folders."""
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    with zipfile.ZipFile(path) as archive:
        assert names(archive) == ["_trainplan.pth"]


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_strangers_package_of_the_same_name_changes_nothing(tmp_path, package):
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    paths = os.pathsep.join((str(tmp_path), str(ROOT / ".editable")))
    done = subprocess.run(
        [sys.executable, "-c", "from trainplan.cli.main import main; main()", "catalog", "gpus"],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "h100-sxm" in done.stdout


def test_packages_are_typed(wheel):
    assert {f"trainplan/{package}/py.typed" for package in PACKAGES} <= set(names(wheel))


def test_every_room_is_packed_and_is_a_package(wheel):
    """`.gitignore` also keeps folders out of the wheel."""
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    packed = {*names(wheel)}
    assert {f"trainplan/{path.relative_to(ROOT).as_posix()}" for path in modules} <= packed
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in modules}
    assert {f"trainplan/{room}/__init__.py" for room in rooms} <= packed


def test_every_file_of_the_packages_is_packed(wheel):
    """Data of the catalog, templates, pages and scripts of reports: whatever they end in."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*")]
    kept = {path.relative_to(ROOT).as_posix() for path in files if path.is_file()}
    expected = {f"trainplan/{path}" for path in kept if "__pycache__" not in path}
    assert len({Path(path).suffix for path in expected}) > 3
    assert expected == set(names(wheel))


def test_command_and_license_are_declared(wheel):
    texts = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "plan = trainplan.cli.main:main" in wheel.read(texts["entry_points.txt"]).decode()
    assert "Apache License" in wheel.read(texts["LICENSE"]).decode()
    assert wheel.read(texts["NOTICE"]) == (ROOT / "NOTICE").read_bytes()


def test_the_source_distribution_holds_all_that_is_in_the_wheel_and_the_tests(wheel, tmp_path):
    (path,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(path) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.removeprefix("trainplan/") for name in names(wheel)} <= packed
    tests = (ROOT / "tests").rglob("test_*.py")
    assert {path.relative_to(ROOT).as_posix() for path in tests} <= packed
    assert {"NOTICE", "LICENSE", "README.md", "pyproject.toml", "Makefile"} <= packed


@pytest.mark.parametrize("arguments", ["['--help']", "['search', '--help']"])
def test_starting_loads_neither_torch_nor_a_solver(arguments):
    code = (
        "import sys, trainplan.cli.main\n"
        f"trainplan.cli.main.run({arguments})\n"
        "heavy = ('torch', 'pulp', 'highspy', 'ortools', 'scipy')\n"
        "sys.exit(any(name in sys.modules for name in heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tests_ask_for_the_torch_that_the_extra_brings():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    sources = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    wanted = {one for text in sources for one in re.findall(r'skip\("torch", "([\d.]+)"', text)}
    assert [f"torch>={version}" for version in wanted] == project["optional-dependencies"][
        "oracles"
    ]


def test_the_versions_of_python_that_are_named_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    checks = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8"))
    assert checks["jobs"]["check"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_doctor_looks_for_every_library_that_an_installation_brings():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[<>=]", one)[0] for one in project["dependencies"]}
    assert set(LIBRARIES) == wanted


def test_the_conda_recipe_and_the_citation_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    recipe = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text("utf-8"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert recipe["context"]["version"] == citation["version"] == project["version"]
    runs = [f"python{project['requires-python']}", *project["dependencies"]]
    assert sorted(one.replace(" ", "") for one in recipe["requirements"]["run"]) == sorted(runs)
    (command,) = project["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(command)]
    assert recipe["about"]["license"] == citation["license"] == project["license"]
    assert recipe["about"]["summary"] == project["description"]


def test_an_image_is_built_of_what_a_wheel_is_made_of():
    kept = (PACKAGING / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = {"pyproject.toml", build["project"]["readme"], *build["project"]["license-files"]}
    packed = build["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    wanted |= {name.partition("/")[0] for name in packed}
    assert {one.removeprefix("!") for one in kept if one.startswith("!")} == wanted
