"""What `make release` asks of a tree before it builds anything."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "release.py"
PROJECT = '[project]\nname = "x"\nversion = "1.2.0"\n'
CHANGELOG = """# Changelog

## Unreleased
{unreleased}
## 1.2.0 - 2026-11-26

### Added

* Something.

## 1.1.0 - 2026-10-01

* Older.
"""


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    """A repository that is ready."""
    write(tmp_path, "pyproject.toml", PROJECT)
    write(tmp_path, "CHANGELOG.md", CHANGELOG.format(unreleased=""))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path)
    return tmp_path


def write(tree, name, text):
    (tree / name).write_text(text)


def commit(tree):
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "add", "-A"], cwd=tree, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "x"], cwd=tree, check=True)


@pytest.mark.parametrize("tag", ["", "v1.2.0"])
def test_a_committed_tree_whose_changelog_has_the_version_is_ready(release, tree, tag):
    assert release.ready(tree, tag) == "1.2.0"


def test_a_file_that_is_not_committed_is_named(release, tree):
    write(tree, "new.txt", "")
    with pytest.raises(release.NotReadyError, match=r"new\.txt is not committed"):
        release.ready(tree)


def test_a_version_without_its_section_is_refused(release, tree):
    write(tree, "pyproject.toml", PROJECT.replace("1.2.0", "1.3.0"))
    commit(tree)
    with pytest.raises(release.NotReadyError, match=r"no lines under `## 1\.3\.0 - DATE`"):
        release.ready(tree)


def test_lines_that_have_no_version_yet_are_refused(release, tree):
    write(tree, "CHANGELOG.md", CHANGELOG.format(unreleased="\n### Added\n\n* More.\n"))
    commit(tree)
    with pytest.raises(release.NotReadyError, match="lines under Unreleased"):
        release.ready(tree)


def test_a_tag_of_another_version_is_refused(release, tree):
    with pytest.raises(release.NotReadyError, match=r"the tag is v1\.1\.0, .* has 1\.2\.0"):
        release.ready(tree, "v1.1.0")


def test_a_folder_that_is_there_is_left_alone(release, tree, tmp_path):
    (tmp_path / "dist").mkdir()
    with pytest.raises(release.NotReadyError, match="dist exists: move it away"):
        release.release(tree, "1.2.0", tmp_path / "dist")


def test_sums_are_those_that_sha256sum_checks(release, tmp_path):
    (tmp_path / "a.whl").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1: SHA-256 of "abc"
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert release.sums(tmp_path) == f"{abc}  a.whl\n"


def test_the_changelog_of_this_tree_is_read(release):
    text = (SCRIPT.parents[1] / "CHANGELOG.md").read_text("utf-8")
    sections = release.changelog(text)
    assert len(sections["0.1.0"]) > 10
    assert "Unreleased" in sections
