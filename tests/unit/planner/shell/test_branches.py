"""What a script may or may not do is read, said, and undone behind it."""

import pytest

from trainplan.planner.shell import Launch, Place, launches_of_script
from trainplan.planner.shell.words import ShellError


def read(text: str, **settings: str) -> list[Launch]:
    return list(launches_of_script(text, "run.sh", settings))


def arguments(launch: Launch) -> str:
    return " ".join(word.text for word in launch.arguments)


def causes(launch: Launch) -> list[tuple[str, int | None]]:
    return [(p.cause, p.place.line if p.place else None) for p in launch.problems]


def test_a_variable_set_in_a_branch_that_only_a_run_decides_is_asked_for():
    text = "TP=1\nif [ -f big ]; then\n TP=8\nfi\ntorchrun x.py --tp $TP"
    (launch,) = read(text)
    assert launch.arguments[1].unresolved == ("TP",)
    assert causes(launch) == [("branch_unread", 2)]
    assert arguments(read(text, TP="4")[0]) == "--tp 4"


def test_branches_that_agree_or_are_undone_decide_nothing():
    text = """
if [ -f big ]; then TP=8; LOG=a; else TP=8; LOG=b; fi
if ! which x; then exit 1; fi
case $1 in *) PP=2 ;; esac
torchrun x.py --tp $TP --pp $PP
"""
    (launch,) = read(text)
    assert arguments(launch) == "--tp 8 --pp 2"
    assert launch.problems == ()


def test_what_a_branch_adds_is_left_out_and_said():
    text = """ARGS=(--tp 8)
OPTIONS="--pp 2"
if [ "$1" = fp8 ]; then
  ARGS+=(--fp8)
  OPTIONS="$OPTIONS --sp"
fi
torchrun x.py "${ARGS[@]}" $OPTIONS
"""
    (launch,) = read(text)
    assert arguments(launch) == "--tp 8 --pp 2"
    assert causes(launch) == [("branch_unread", 3), ("branch_unread", 3)]
    (launch,) = read(text, **{"1": "fp8"})
    assert arguments(launch) == "--tp 8 --fp8 --pp 2 --sp"
    assert launch.problems == ()


def test_a_launch_inside_a_branch_is_read_with_what_the_branch_sets():
    text = """
if [ -n "$1" ]; then
  NODES=4
  torchrun --nnodes $NODES x.py
else
  torchrun --nnodes 1 x.py
fi
"""
    four, one = read(text)
    assert (four.nodes.text, one.nodes.text) == ("4", "1")
    assert causes(four) == [("branch_unread", 2)]
    assert "--set 1=VALUE" in four.problems[0].says
    (four,) = read(text, **{"1": "slurm"})
    assert four.problems == ()


def test_a_loop_is_read_once_and_its_variable_is_asked_for():
    (launch,) = read("for TP in 1 2 4; do\n torchrun x.py --tp $TP\ndone")
    assert launch.arguments[1].unresolved == ("TP",)
    assert ("branch_unread", 1) in causes(launch)
    (launch,) = read("for TP in 1 2 4; do\n torchrun x.py --tp $TP\ndone", TP="2")
    assert arguments(launch) == "--tp 2"


def test_a_function_that_nothing_calls_is_read_and_said():
    (launch,) = read("train() {\n torchrun x.py\n}\n")
    assert causes(launch) == [("branch_unread", 1)]


def test_other_files_are_named():
    (launch,) = read("source env.sh\n. conf/$MODEL.sh\ntorchrun x.py")
    assert causes(launch) == [("shell_unread", 1), ("shell_unread", 2)]
    assert "env.sh" in launch.problems[0].says


def test_what_is_read_from_elsewhere_is_asked_for():
    text = "read -r TP < file\nwhile getopts t: opt; do PP=$OPTARG; done\ntorchrun x.py $TP $PP"
    (launch,) = read(text)
    assert [word.unresolved for word in launch.arguments] == [("TP",), ("PP",)]


def test_a_script_that_stops_before_its_launch_says_where():
    with pytest.raises(ShellError, match="ends at line 2"):
        read("TP=1\nexit 0\ntorchrun x.py")
    (launch,) = read('if [ -z "$DATA" ]; then\n exit 1\nfi\ntorchrun x.py')
    assert causes(launch) == [("script_stops", 2)]
    assert read('if [ -z "$DATA" ]; then\n exit 1\nfi\ntorchrun x.py', DATA="d")[0].problems == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo hello", "no launch"),
        ("bash pretrain.sh --tp 2", r"it runs pretrain.sh \(line 1\)"),
        ("echo torchrun x.py", "no launch"),
        ('\nA="x', 'line 2: the "'),
        ("\nA='x", "line 2: the '"),
        ("A=(x\n", "line 1: the array"),
        ("A=$(x\n", r"line 1: .* add a `\)`"),
        ("A=${x\n", "line 1: .* add a `}`"),
        ("A=`x\n", "line 1: the `"),
        ("A=$'x\n", r"line 1: the \$'"),
        ("if true; then\n torchrun x.py", "line 1: this `if` is never closed"),
        ("torchrun x.py\nfi", "line 2: `fi` closes nothing"),
        ("case x\nin", "line 1"),
        ("echo >\n", "names no file"),
        ("f ( x", "line 1: a `\\(`"),
        ("a\0b", "line 1: a NUL byte"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, says):
    with pytest.raises(ShellError, match=says) as error:
        read(text)
    assert str(error.value).startswith("run.sh")
    assert "\n" not in str(error.value)


def test_a_known_condition_leaves_out_a_launch_for_good():
    (launch,) = read("A=1\nif [ $A = 2 ]; then torchrun no.py; fi\ntorchrun x.py")
    assert launch.program.text == "x.py"


def test_places_in_text_that_a_command_runs_are_those_of_the_script():
    (launch,) = read('srun bash -c "\n  torchrun \\\n   x.py --tp 2"')
    assert launch.program.place == Place("run.sh", 3)
