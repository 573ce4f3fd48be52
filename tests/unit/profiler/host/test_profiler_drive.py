"""What file system a folder is on."""

import os
import shutil

import pytest

from trainplan.profiler.host.machine import file_system, space_bytes, this_host
from trainplan.profiler.task import Place

LINE = "36 25 {device} / {point} rw,relatime shared:1 - {kind} /dev/x rw\n"


@pytest.fixture
def mounts(tmp_path):
    """(device of the folder or another, type) of each mount -> a table of them."""

    def write(*rows):
        device = tmp_path.stat().st_dev
        own = f"{os.major(device)}:{os.minor(device)}"
        lines = [
            LINE.format(device=own if mine else "250:99", point=point, kind=kind)
            for mine, point, kind in rows
        ]
        path = tmp_path / "mountinfo"
        path.write_text("".join(lines))
        return path

    return write


def test_the_mount_with_the_number_of_the_folder_says_its_type(tmp_path, mounts):
    table = mounts((False, "/", "ext4"), (True, "/elsewhere", "xfs"))
    assert file_system(tmp_path, table) == "xfs"


def test_else_the_longest_mount_point_above_it_does(tmp_path, mounts):
    table = mounts((False, "/", "ext4"), (False, tmp_path, "btrfs"), (False, "/no", "xfs"))
    assert file_system(tmp_path, table) == "btrfs"


def test_a_system_that_does_not_say_leaves_it_open(tmp_path):
    assert file_system(tmp_path, tmp_path / "none") == ""
    assert file_system(tmp_path / "gone") == ""
    assert space_bytes(tmp_path / "gone") == (None, None)


def test_room_is_that_of_the_file_system(tmp_path):
    assert space_bytes(tmp_path)[0] == shutil.disk_usage(tmp_path).total


def test_the_host_says_what_its_drive_is_where_one_is_asked_for(tmp_path):
    pytest.importorskip("torch")
    place = Place("cpu", 0, 1, 0, 1)
    found = this_host(place, scratch=str(tmp_path))
    assert found.drive_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < found.drive_free_bytes <= found.drive_bytes
    assert found.drive_file_system == file_system(tmp_path) != ""
    bare = this_host(place)
    assert (bare.drive_bytes, bare.drive_free_bytes, bare.drive_file_system) == (None, None, "")
