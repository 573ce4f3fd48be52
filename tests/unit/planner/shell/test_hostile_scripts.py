"""Nothing runs, nothing explodes, and time grows with the text."""

from pathlib import Path

import pytest

from tests.grids import number
from trainplan.planner.shell import launch_of_command, launches_of_script, variables
from trainplan.planner.shell.words import ShellError


def test_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """
A=$(touch canary); B=`touch canary`; eval "touch canary"; eval 'C=$(touch canary)'
source <(touch canary); . ./canary.sh; cat <(touch canary) > canary; exec 3<>canary
D='$(touch canary)'; eval "E=$D"; bash -c "touch canary"; touch canary
(( x = a[$(touch canary)] )); [[ -f $(touch canary) ]]; echo ${A:-$(touch canary)}
trap 'touch canary' EXIT; f() { touch canary; }; f; coproc touch canary
torchrun x.py --a "$(touch canary)" $A $B $D $E ${A:=$(touch canary)} $((a[$(touch canary)]))
"""
    (launch,) = launches_of_script(text, "run.sh", {"A": "$(touch canary)", "1": "`touch canary`"})
    assert launch.program.text == "x.py"
    launch_of_command(["bash", "-c", "touch canary; torchrun $(touch canary) x.py"], {})
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "A=$A$A\n" * 100,
        "A=(x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 100,
        "A=x\n" + "A+=$A\n" * 100,
        "f() { f; f; }; f\n",
        "f() { g; g; }; g() { h; h; }; h() { f; f; }; f\n",
        'A=\'eval "$A"; eval "$A"\'; eval "$A"\n',
    ],
)
def test_what_explodes_is_refused(text, monkeypatch):
    less = variables._WORK_LIMIT // number(10, by_night=1)
    monkeypatch.setattr(variables, "_WORK_LIMIT", less)
    with pytest.raises(ShellError, match="write the launch"):
        launches_of_script(text + "torchrun x.py", "run.sh", {})


@pytest.mark.parametrize(
    "text",
    [
        "{ " * 3000,
        "( " * 3000,
        "(" * 3000,
        "if true; then " * 3000,
        "case x in x) " * 3000,
        "A=" + "${A:-" * 3000 + "}" * 3000,
        "A=" + "$(" * 3000,
        "A=" + "$((" * 3000 + "))" * 3000,
        'A="' + '"$(' * 3000,
        "while " * 3000,
        "f() " * 3000,
    ],
)
def test_deep_nesting_is_an_error_or_read(text):
    with pytest.raises(ShellError):
        launches_of_script(text, "run.sh", {})


@pytest.mark.parametrize(
    "line", ["echo " + "--a-long-option of-a-long-value " * 32_000, "echo " + "x" * 1_000_000]
)
def test_a_line_of_a_megabyte_is_read(line):
    (launch,) = launches_of_script(line + "\ntorchrun x.py", "run.sh", {})
    assert launch.program.place.line == 2
