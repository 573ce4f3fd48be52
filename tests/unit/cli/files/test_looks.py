"""What a command read holds until it changes."""

import pytest

from trainplan.cli.files.disk import FileError, read_text
from trainplan.cli.files.looks import LOOKS, Looks
from trainplan.cli.files.readable import is_folder, is_there
from trainplan.cli.files.routing import load_routing


@pytest.fixture
def looks(tmp_path):
    kept = Looks((tmp_path,))
    token = LOOKS.set(kept)
    yield kept
    LOOKS.reset(token)


def unread(path):
    with pytest.raises(FileError):
        read_text(path)


CHANGES = {
    "other bytes, the same size and time": (read_text, "a", lambda path: path.write_text("b")),
    "gone": (read_text, "a", lambda path: path.unlink()),
    "come": (unread, None, lambda path: path.write_text("a")),
    "asked for and come": (is_there, None, lambda path: path.write_text("a")),
    "a folder now": (is_folder, None, lambda path: path.mkdir()),
    "elsewhere now": (
        read_text,
        "a",
        lambda path: path.rename(path.with_name("real")) and path.symlink_to("real"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_looks_hold_until_something_changes(looks, tmp_path, change):
    look, text, change_it = CHANGES[change]
    path = tmp_path / "file"
    if text is not None:
        path.write_text(text)
    look(path)
    assert looks.hold()
    change_it(path)
    assert not looks.hold()


def test_a_file_more_in_a_folder_is_a_change(looks, tmp_path):
    line = '{"iter": 1, "block": "decoder", "layer": 0, "tpe": [[1, 2]]}'
    (tmp_path / "rank0.jsonl").write_text(line)
    load_routing(tmp_path)
    assert looks.hold()
    (tmp_path / "rank1.jsonl").write_text(line)
    assert not looks.hold()


def test_a_file_that_changes_between_two_looks_never_holds(looks, tmp_path):
    path = tmp_path / "file"
    path.write_text("a")
    read_text(path)
    path.write_text("b")
    read_text(path)
    path.write_text("a")
    assert not looks.hold()


def test_looks_in_a_folder_that_goes_are_left_out(looks, tmp_path):
    inside, other = tmp_path / "call", tmp_path / "file"
    inside.mkdir()
    (inside / "model.yaml").write_text("a")
    other.write_text("b")
    read_text(inside / "model.yaml")
    read_text(other)
    outside = looks.outside(inside)
    (inside / "model.yaml").unlink()
    assert outside.hold()
    assert not looks.hold()
    other.unlink()
    assert not outside.hold()
