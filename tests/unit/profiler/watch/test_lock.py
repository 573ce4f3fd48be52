"""Who may write to an output, on file systems with locks and without."""

import errno
import fcntl
import os
import subprocess

import pytest

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.watch import lock as module
from trainplan.profiler.watch.lock import Owner, only_run, this_process


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "out.lock"


@pytest.fixture
def no_locks(monkeypatch):
    def refusing(code):
        def flock(descriptor, operation):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(fcntl, "flock", flock)

    return refusing


@pytest.fixture
def ended():
    """Number of a process that is gone."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


def files(lock):
    return [path.name for path in lock.parent.iterdir()]


def test_one_run_at_a_time_measures_into_an_output(tmp_path):
    lock = tmp_path / "out.lock"
    with only_run(lock), pytest.raises(ProfilerError, match="another run"), only_run(lock):
        pass
    assert not lock.exists()
    with only_run(lock):
        assert lock.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_a_file_names_the_owner_and_goes_with_the_run(lock, no_locks, code):
    no_locks(code)
    with only_run(lock):
        assert lock.read_text() == this_process().line
        assert files(lock) == ["out.lock"]
    assert files(lock) == []


def test_without_locks_a_run_of_a_live_process_is_refused_by_its_number(lock, no_locks):
    no_locks(errno.ENOLCK)
    other = Owner(this_process().host, this_process().boot, os.getppid())
    lock.write_text(other.line)
    with pytest.raises(ProfilerError, match=rf"process {other.pid} on .*remove that file"):
        only_run(lock).__enter__()
    assert (lock.read_text(), files(lock)) == (other.line, ["out.lock"])


def test_without_locks_a_run_on_another_host_is_refused_though_no_such_process_is_here(
    lock, no_locks, ended
):
    no_locks(errno.ENOLCK)
    lock.write_text(Owner("elsewhere", "", ended).line)
    with pytest.raises(ProfilerError, match=f"process {ended} on elsewhere"):
        only_run(lock).__enter__()


@pytest.mark.parametrize("left", ["killed", "before the system started anew", "nothing written"])
def test_without_locks_what_a_killed_run_left_is_taken_over(lock, no_locks, ended, left):
    no_locks(errno.ENOSYS)
    me = this_process()
    written = {
        "killed": Owner(me.host, me.boot, ended).line,
        "before the system started anew": Owner(me.host, "another", os.getppid()).line,
        "nothing written": "",
    }
    lock.write_text(written[left])
    with only_run(lock):
        assert lock.read_text() == me.line
    assert files(lock) == []


def test_a_folder_that_nobody_may_write_to_is_no_other_run(lock, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(module.os, "open", refuse)
    with pytest.raises(ProfilerError, match=r"cannot be locked \(Permission denied\): choose"):
        only_run(lock).__enter__()


def test_an_error_of_the_drive_is_told_as_it_is(lock, no_locks):
    no_locks(errno.EIO)
    with pytest.raises(ProfilerError, match="Input/output error"):
        only_run(lock).__enter__()
