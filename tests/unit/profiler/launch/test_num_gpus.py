"""How many GPUs there are, asked in a process that may hang or die in a driver."""

import pytest

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch import launch
from trainplan.profiler.watch.watch import Limits


@pytest.fixture
def wanted(monkeypatch):
    def of(program, **more):
        monkeypatch.setattr(launch, "COUNT_GPUS", program)
        return launch.num_gpus(**more)

    monkeypatch.setattr(launch, "need_torch", lambda: None)
    return of


def test_what_the_process_prints_is_the_number(wanted):
    assert wanted("print(3)") == 3


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            "import os; os.kill(os.getpid(), 11)",
            "the process that loads .* killed by SIGSEGV: look",
        ),
        (
            "import os; os.write(2, b'some warning\\n'); os.kill(os.getpid(), 9)",
            "killed by SIGKILL: look whether memory ran out",
        ),
        ("raise ImportError('libcudart.so')", "torch does not load: .*libcudart.so; install it"),
    ],
)
def test_a_process_that_dies_says_why(wanted, program, words):
    with pytest.raises(ProfilerError, match=words):
        wanted(program)


@pytest.mark.parametrize(
    ("program", "limits"),
    [
        ("import time; time.sleep(60)", Limits(0.3, 60.0)),
        ("while True: pass", Limits(60.0, 0.3)),
    ],
)
def test_a_driver_that_hangs_is_given_up(wanted, program, limits):
    with pytest.raises(ProfilerError, match=r"--timeout.*--start-timeout.*nvidia-smi"):
        wanted(program, limits=limits)


def test_whoever_is_told_to_end_waits_no_longer(wanted):
    def pause(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wanted("import time; time.sleep(60)", pause=pause)
