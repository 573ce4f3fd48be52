"""How many GPUs there are, asked in a process that may hang or die in a driver."""

import pytest

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch import launch


@pytest.fixture
def asked(monkeypatch):
    def of(program, **more):
        monkeypatch.setattr(launch, "COUNT_GPUS", program)
        return launch.num_gpus(**more)

    monkeypatch.setattr(launch, "need_torch", lambda: None)
    return of


def test_what_the_process_prints_is_the_number(asked):
    assert asked("print(3)") == 3


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", "torch does not load: killed by signal 11"),
        ("raise ImportError('libcudart.so')", "ImportError: libcudart.so"),
    ],
)
def test_a_process_that_dies_says_why(asked, program, words):
    with pytest.raises(ProfilerError, match=words):
        asked(program)


def test_a_driver_that_hangs_ends_with_the_time_of_a_start(asked):
    with pytest.raises(ProfilerError, match=r"in 0.3 s \(--start-timeout\)"):
        asked("import time; time.sleep(60)", seconds=0.3)


def test_whoever_is_told_to_end_waits_no_longer(asked):
    def pause(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked("import time; time.sleep(60)", pause=pause)
