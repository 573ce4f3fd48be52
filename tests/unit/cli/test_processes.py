"""Work shared by processes gives what it gives alone."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pytest

from tests.budgets import Steps
from trainplan.cli.processes.processes import Processes
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.parameters import parse_varied
from trainplan.planner.comparisons.sweeps import sweep
from trainplan.planner.documents.document import plan_json
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice


@dataclass(frozen=True)
class Half:
    """Half of a number, and the process that found it."""

    number: int

    def __call__(self, deadline):
        return self.number / 2, os.getpid()


@dataclass(frozen=True)
class Left:
    """Seconds left where the work is done."""

    def __call__(self, deadline):
        return deadline.seconds_left()


@dataclass(frozen=True)
class Dies:
    """Ends the process it is done in, if that is not its own."""

    home: int

    def __call__(self, deadline):
        if os.getpid() != self.home:
            os._exit(9)
        return "survived"


@dataclass(frozen=True)
class Fails:
    """Raises an error."""

    def __call__(self, deadline):
        raise ZeroDivisionError("of a task")


def wait_for(processes):
    """Until another process works."""
    while {where for _, where in processes.run([Half(1), Half(2)], Steps())} == {os.getpid()}:
        pass


@pytest.fixture(scope="module", name="processes")
def _processes():
    with Processes(2, alone_s=0.0) as processes:
        wait_for(processes)
        yield processes


@pytest.fixture(name="forking")
def _forking():
    with Processes(2, alone_s=0.0) as processes:
        wait_for(processes)
        yield processes


def test_results_come_in_the_order_of_their_tasks_from_other_processes(processes):
    tasks = [Half(number) for number in range(40)]
    halves, where = zip(*processes.run(tasks, Steps()), strict=True)
    assert list(halves) == [number / 2 for number in range(40)]
    assert os.getpid() not in where


@dataclass(frozen=True)
class In:
    """A deadline some seconds from now, whenever that is."""

    seconds: float

    def seconds_left(self):
        return self.seconds


def test_a_deadline_holds_in_another_process(processes):
    assert all(0 < left <= 5 for left in processes.run([Left(), Left()], In(5.0)))
    assert list(processes.run([Left(), Left()], In(inf))) == [inf, inf]


def test_an_error_of_a_task_is_raised_here(processes):
    with pytest.raises(ZeroDivisionError, match="of a task"):
        list(processes.run([Fails(), Fails()], Steps()))


def test_work_is_done_here_while_it_is_short():
    with Processes(2) as processes:
        assert {where for _, where in processes.run([Half(1), Half(2)], Steps())} == {os.getpid()}


def test_work_of_processes_that_died_is_done_here():
    with Processes(2, alone_s=0.0) as processes:
        wait_for(processes)
        assert list(processes.run([Dies(os.getpid())] * 3, Steps())) == ["survived"] * 3
        assert list(processes.run([Half(1), Half(2)], Steps()))[1] == (1.0, os.getpid())


def test_work_beside_tasks_is_done_by_a_process_of_its_own(forking):
    known = [1, 2]
    result = forking.in_background(lambda: (sum(known), os.getpid()))
    known.append(3)
    where = {where for _, where in forking.run([Half(1), Half(2)], Steps())}
    number, alongside = result()
    assert number == 3, "what is known when it begins"
    assert alongside not in {os.getpid(), *where}


def test_work_beside_tasks_shares_its_own_tasks_with_nobody(forking):
    homes = forking.in_background(
        lambda: {os.getpid(), *(where for _, where in forking.run([Half(1), Half(2)], Steps()))}
    )
    assert len(homes()) == 1


def test_an_error_of_work_beside_tasks_is_raised_where_its_result_is_asked_for(forking):
    result = forking.in_background(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        result()


def test_work_beside_tasks_is_done_here_if_its_process_dies(forking):
    home = os.getpid()
    assert forking.in_background(lambda: Dies(home)(Steps()))() == "survived"


def test_work_beside_tasks_waits_for_its_turn_where_there_is_one_processor():
    with Processes(1) as processes:
        known = [1, 2]
        result = processes.in_background(lambda: (sum(known), os.getpid()))
        known.append(3)
        assert result() == (6, os.getpid())


def test_each_piece_is_done_once_and_comes_in_its_order_whoever_does_it():
    with Processes(3) as processes:
        for number in range(12):
            found = list(processes.each(lambda piece: (piece, os.getpid()), range(number)))
            assert [piece for piece, _ in found] == list(range(number))
            assert len({where for _, where in found}) == min(3, number // 2 or number)


def test_an_error_of_a_piece_is_raised_here():
    with Processes(2) as processes, pytest.raises(ZeroDivisionError):
        list(processes.each(lambda piece: 1 // (3 - piece), range(4)))


def test_a_search_finds_and_proves_the_same_with_others(make_job, processes):
    job = make_job("small-dense", "1x8:h100-sxm", 8)
    model = job.model.model_copy(update={"vocab_size": 512_000, "num_hidden_layers": 6})
    job = job.model_copy(update={"model": model})
    fixed = tuple(parse_choice(one, excluded=False) for one in ("pp=2", "tp=1", "cp=1"))
    options = SearchOptions(fix=fixed)
    alone = search(job, options, Steps())
    assert plan_json(search(job, options, Steps(), workers=processes)) == plan_json(alone)
    assert alone.certificate.uneven_stages.judged > 1


def test_a_sweep_is_the_same_with_others(make_job, processes):
    case = Case(make_job("small-dense", "1x8:h100-sxm", 8), SearchOptions())
    varied = [parse_varied("gpus=4,8,16"), parse_varied("tp=1,2")]
    assert sweep(case, varied, Steps(), processes) == sweep(case, varied, Steps())


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_travels_to_another_process(name):
    assert pickle.loads(pickle.dumps(RUNTIMES[name])) == RUNTIMES[name]


@dataclass(frozen=True)
class UntilTheEnd:
    """Works as long as there is time, in the process that it says."""

    def __call__(self, deadline):
        while deadline.seconds_left() > 0:
            time.sleep(0.01)
        return os.getpid()


def test_work_that_the_user_stops_ends_here_with_the_time_there_is():
    begun, home = inf, os.getpid()

    def stopped():
        return time.monotonic() - begun > 0.3

    class Stopped(Steps):
        def seconds_left(self):
            return 0.0 if stopped() else inf

    with Processes(2, alone_s=0.0, stopped=stopped) as processes:
        wait_for(processes)
        begun = time.monotonic()
        alongside = processes.in_background(lambda: os.getpid() == home or time.sleep(60.0))
        assert list(processes.run([UntilTheEnd()] * 4, Stopped())) == [os.getpid()] * 4
        assert alongside()
    assert time.monotonic() - begun < 20


ENDLESS = """
import signal
import time
from pathlib import Path
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.cli.processes.processes import Processes
from tests.budgets import Steps
from tests.unit.cli.test_processes import Sleeps, wait_for

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
with Processes(2, alone_s=0.0) as processes:
    wait_for(processes)
    processes.in_background(lambda: time.sleep(60.0))
    print("working", flush=True)
    list(processes.run([Sleeps(60.0)] * 4, Steps()))
"""


@dataclass(frozen=True)
class Sleeps:
    """Takes a while."""

    seconds: float

    def __call__(self, deadline):
        time.sleep(self.seconds)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_search(number, tmp_path):
    main = tmp_path / "main.py"
    main.write_text("if __name__ == '__main__':\n    " + ENDLESS.replace("\n", "\n    "))
    command = [sys.executable, str(main)]
    paths = os.pathsep.join((str(Path.cwd() / ".editable"), str(Path.cwd())))
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as search:
        assert search.stdout.readline() == "working\n"
        (os.killpg if number == signal.SIGINT else os.kill)(search.pid, number)
        err = search.stderr.read()
    assert err.count("Traceback") == (number == signal.SIGINT), "of the search itself, if any"
    for _ in range(100):
        try:
            os.killpg(search.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("processes were left")
