"""What a killed run leaves goes with the next one, and what lives stays."""

import tempfile

import pytest

from trainplan.profiler.watch.folder import PREFIX, run_folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_run(here):
    with run_folder() as folder:
        (folder / "rank-0.json").write_text("{}")
        assert folder.parent == here
    assert list(here.iterdir()) == []


def test_folders_of_killed_runs_are_removed_and_those_of_live_ones_and_of_others_are_not(here):
    killed = here / f"{PREFIX}killed"
    killed.mkdir()
    (killed / "alive").write_text("")  # the system freed its lock
    strange = here / f"{PREFIX}strange"
    strange.mkdir()
    with run_folder() as lives, run_folder() as mine:
        assert {path.name for path in here.iterdir()} == {lives.name, mine.name, strange.name}
    assert list(here.iterdir()) == [strange]
