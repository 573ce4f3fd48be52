"""What a script may or may not do is read, said, and undone behind it."""

import posixpath

import pytest

from trainplan.planner.shell import Host, Launch, Place, launches_of_script
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
if [ "$(cat kind)" = fp8 ]; then
  ARGS+=(--fp8)
  OPTIONS="$OPTIONS --sp"
fi
torchrun x.py "${ARGS[@]}" $OPTIONS
"""
    (launch,) = read(text)
    assert arguments(launch) == "--tp 8 --pp 2"
    assert causes(launch) == [("branch_unread", 3), ("branch_unread", 3)]
    (launch,) = read(text.replace("$(cat kind)", "$1"), **{"1": "fp8"})
    assert arguments(launch) == "--tp 8 --fp8 --pp 2 --sp"
    assert launch.problems == ()


def test_a_launch_inside_a_branch_is_read_with_what_the_branch_sets():
    text = """
if [ -n "$SLURM_JOB_ID" ]; then
  NODES=4
  torchrun --nnodes $NODES x.py
else
  torchrun --nnodes 1 x.py
fi
"""
    text = f"#SBATCH -N 4\n{text}"
    four, one = read(text)
    assert (four.nodes.text, one.nodes.text) == ("4", "1")
    assert causes(four)[0] == ("branch_unread", 3)
    assert "--set SLURM_JOB_ID=VALUE" in four.problems[0].says
    (four,) = read(text, SLURM_JOB_ID="7")
    assert four.problems == ()


def test_a_loop_is_read_once_and_its_variable_is_asked_for():
    (launch,) = read("for TP in 1 2 4; do\n torchrun x.py --tp $TP\ndone")
    assert launch.arguments[1].unresolved == ("TP",)
    assert ("branch_unread", 1) in causes(launch)
    (launch,) = read("for TP in 1 2 4; do\n torchrun x.py --tp $TP\ndone", TP="2")
    assert arguments(launch) == "--tp 2"


def test_several_turns_with_a_launch_name_their_values():
    (launch,) = read("for TP in 1 2 4; do\n N=$((N+1)); torchrun x.py --tp $TP\ndone")
    assert "TP takes 1, 2, 4 in a loop: give --set TP=VALUE" in launch.problems[0].says
    text = "for ((i=1; i<3; i++)); do torchrun x.py --i $i; done"
    assert [p.cause for one in read(text) for p in one.problems] == ["branch_unread"]
    nested = "for a in 1 2; do " * 30 + "torchrun x.py; " + "done; " * 30
    assert read(nested)[0].program.text == "x.py"


def test_a_loop_without_a_launch_that_never_ends_is_said():
    (launch,) = read("A=1\nwhile true; do A=$((A+1)); done\ntorchrun x.py $A")
    assert launch.arguments[0].unresolved == ("A",)


@pytest.mark.parametrize(
    "text",
    [
        "while true; do f; sleep 1; done; f() { g; }; g() { :; }",
        "f() { g; }; g() { :; }; while true; do f; f; f; A+=(x); sleep 1; done",
        "f() { for x in $(pgrep y); do f $x; done; [ -f z ] && f; }; f",
        "f() { g() { :; }; }",
    ],
)
def test_loops_and_functions_that_may_never_end_refuse_nothing(text):
    assert read(f"{text}\ntorchrun x.py")[0].program.text == "x.py"


def test_what_is_read_of_a_loops_variable_names_that_variable():
    text = 'for c in "2,4" "4,2"; do IFS=, read -r TP PP <<< "$c"; torchrun x.py $TP $PP; done'
    (launch,) = read(text)
    assert [word.unresolved for word in launch.arguments] == [("c",), ("c",)]
    assert arguments(read(text, c="4,2")[0]) == "4 2"


def test_where_a_script_goes_is_followed():
    (launch,) = read("cd $ROOT/a\nC=`pwd`/x.py\ncd ..\ntorchrun $C --d $(pwd)")
    assert (launch.program.text, launch.program.unresolved) == ("$ROOT/a/x.py", ("ROOT",))
    assert launch.problems == ()


FILES = {
    "env.sh": "TP=4\nexport PP=2\nf() { CP=$1; }\nsource lib/more.sh",
    "lib/more.sh": "f 8; return; TP=9",
    "inner.sh": "python x.py --tp ${TP:-none} --pp $PP $1",
    "self.sh": "source self.sh",
    "twice.sh": "source twice.sh; source twice.sh",
    "open.sh": 'A="x',
}


def with_files(text: str, **settings: str) -> list[Launch]:
    def opened(name: str) -> str | None:
        return FILES.get(posixpath.normpath(name))

    return list(launches_of_script(text, "run.sh", settings, Host(read=opened)))


def test_a_file_that_stands_beside_the_script_is_followed():
    (launch,) = with_files("source env.sh\ntorchrun x.py $TP $PP $CP")
    assert arguments(launch) == "4 2 8"
    assert [word.place for word in launch.arguments[:2]] == [Place("env.sh", 1), Place("env.sh", 2)]
    assert launch.problems == ()
    (launch,) = with_files("source self.sh; . open.sh; . gone.sh\ntorchrun x.py")
    assert [p.says.split()[0] for p in launch.problems] == ["self.sh", "open.sh", "gone.sh"]
    with pytest.raises(ShellError, match="write the launch"):
        with_files("source twice.sh\ntorchrun x.py")


def test_a_script_that_a_script_starts_is_joined_with_it():
    (launch,) = with_files("TP=4; export PP=2\nmpirun -np 16 --npernode 8 bash inner.sh 7")
    assert (launch.starter, launch.ranks.text, launch.nodes.text) == ("mpirun", "16", "2")
    assert arguments(launch) == "--tp none --pp 2 7"
    (launch,) = with_files("srun -N 2 --ntasks-per-node=8 --export=ALL,TP=2,PP=1 ./inner.sh")
    assert arguments(launch) == "--tp 2 --pp 1 $1"
    text = "torchrun --nnodes 2 --nproc_per_node 8 --no-python bash inner.sh"
    (launch,) = with_files(f"PP=3 TP=1 {text}")
    assert (launch.starter, launch.nodes.text, launch.gpus_per_node.text) == ("torchrun", "2", "8")
    assert launch.program.place == Place("inner.sh", 1)
    assert [one.program.text for one in with_files("bash gone.sh; bash inner.sh")] == ["x.py"]
    with pytest.raises(ShellError, match="it runs inner"):
        with_files("sed -i s/4/8/ inner.sh; generate > env.sh; bash inner.sh; bash env.sh")


def test_a_queued_here_document_is_a_job_of_its_own():
    text = "N=2\nsbatch <<EOF\n#!/bin/bash\n#SBATCH -N $N\n#SBATCH --ntasks-per-node=8\n"
    (launch,) = read(f"{text}srun python x.py \\$SLURM_NNODES\nEOF")
    assert (launch.nodes.text, launch.gpus_per_node.text, arguments(launch)) == ("2", "8", "2")
    assert launch.problems == ()


def test_arguments_of_the_script_decide_its_branches():
    text = 'TP=1\nif [ -n "$2" ]; then TP=$2; fi\ntorchrun x.py $TP $1'
    assert arguments(read(text, **{"2": "4"})[0]) == "4 $1"
    assert arguments(read(text, **{"1": "7", "2": "4"})[0]) == "4 7"


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
    (launch,) = read("usage() { exit 1; }\n[ $# -lt 1 ] && usage\ntorchrun x.py $1")
    assert causes(launch) == [("script_stops", 1)]
    (launch,) = read('DATA=\nif [ -z "$DATA" ]; then\n exit 1\nfi\ntorchrun x.py')
    assert causes(launch) == [("script_stops", 3)]
    (launch,) = read('[ -n "$A" ]\nusage() { exit 1; }\nusage\ntorchrun x.py')
    assert causes(launch) == [("script_stops", 2)]


@pytest.mark.parametrize(
    "guard",
    [
        'if [ -z "$DATA" ]; then\n exit 1\nfi',
        'if [ -n "$DATA" ]; then echo $DATA; else exit 1; fi',
        '[[ -z "${DATA:-}" ]] && exit 1',
        '[ -n "$DATA" ] || { echo none; exit 1; }',
        'usage() { exit 1; }\ntest -z "$DATA" && usage',
        "((DATA > 0)) || exit 1",
        'require() {\n if [[ -z "${!1:-}" ]]; then exit 2; fi\n}\nrequire DATA "a sentence"',
        'case "$DATA" in "") exit 1 ;; esac',
        "command -v torchrun > /dev/null || exit 1",
        'if [[ ! -f "$DATA/x.py" ]]; then exit 2; fi',
    ],
)
def test_a_guard_of_the_environment_or_of_a_tool_is_no_problem(guard):
    (launch,) = read(f"{guard}\ntorchrun x.py")
    assert launch.problems == ()
    (launch,) = read(f"{guard}\ntorchrun x.py", DATA="d")
    assert launch.problems == ()


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


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        ('[ "$NODE_RANK" == "0" ]', True),
        ("[ $SKYPILOT_NODE_RANK -eq 0 ]", True),
        ("[[ $SLURM_NODEID == 0 ]]", True),
        ("(( RANK == 0 ))", True),
        ('[ "$NODE_RANK" != "0" ]', False),
        ('[ -n "$NODE_RANK" ]', False),
        ('[ "$LORA_RANK" == "0" ]', False),
        ("[ $NODE_RANK -gt 0 ]", False),
    ],
)
def test_a_script_is_read_as_on_its_first_node(condition, taken):
    text = f"if {condition}; then torchrun a.py; else torchrun b.py; fi\n"
    (launch,) = launches_of_script(text, "run.sh", {})
    assert launch.program.text == ("a.py" if taken else "b.py")
    assert not launch.problems
    held = launches_of_script(f"NODE_RANK=1 LORA_RANK=1\n{text}", "run.sh", {})
    assert len(held) == 1
