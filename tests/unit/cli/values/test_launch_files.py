"""Files that a script sources or runs: opened in its repository alone, and never waited for."""

import os
from pathlib import Path

import pytest

from trainplan.cli.files import FileError
from trainplan.cli.values import alongside, read_launches
from trainplan.planner.shell import Launch

TREE = {
    "repo/examples/big/run.sh": "",
    "repo/examples/big/args.sh": "TP=4",
    "repo/examples/big/conf/more.sh": "PP=2",
    "repo/examples/.git/HEAD": "",
    "repo/outside.sh": "TP=9; PP=9",
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in TREE.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)

    def launch(text: str, *arguments: str) -> Launch:
        path = Path("repo/examples/big/run.sh")
        path.write_text(f"{text}\ntorchrun x.py ${{TP:-none}} ${{PP:-none}}")
        return read_launches([str(path), *arguments], {})[0]

    return launch


@pytest.mark.parametrize(
    "text",
    [
        "source args.sh; . conf/more.sh",
        'DIR=$(cd "$(dirname "$0")" && pwd); source $DIR/args.sh; source "${DIR}/conf/more.sh"',
        "source examples/big/args.sh; source ./examples/big/conf/more.sh",
        ". $(pwd)/args.sh; . $PWD/conf/more.sh",
        "source /cluster/other/examples/big/args.sh; source $ROOT/examples/big/conf/more.sh",
        'source "$(dirname "${BASH_SOURCE[0]}")"/args.sh; source $(dirname $0)/conf/more.sh',
    ],
)
def test_files_of_the_scripts_folder_are_followed(run, text):
    launch = run(text)
    assert [word.text for word in launch.arguments] == ["4", "2"]
    assert launch.problems == ()


@pytest.mark.parametrize(
    "name", ["../../outside.sh", "repo/outside.sh", "/etc/passwd", "link.sh", "fifo", "conf", "\0"]
)
def test_others_are_named_and_never_waited_for(run, name):
    folder = Path("repo/examples/big")
    os.mkfifo(folder / "fifo")
    (folder / "link.sh").symlink_to("../../outside.sh")
    if name == "\0":
        name = "x" * 5000
    (problem,) = run(f"source {name}").problems
    assert (problem.cause, problem.verdict) == ("shell_unread", "unread")


@pytest.mark.parametrize("root", ["repo", ""])
def test_files_of_its_repository_above_the_script_are_followed(run, root):
    git = Path("repo/examples/.git")
    (git / "HEAD").unlink()
    git.rmdir()
    if root:
        Path(root, ".git").mkdir()
    launch = run('DIR=$(dirname "$0"); source "${DIR}/../../outside.sh"')
    assert ([word.text for word in launch.arguments], launch.problems) == (["9", "9"], ())
    assert run('DIR=$(dirname "$0"); source "${DIR}/../../../../etc/passwd"').problems


def test_environments_of_programs_are_no_problem(run):
    assert run("source venv/bin/activate; . /etc/profile.d/modules.sh").problems == ()


def test_words_behind_a_script_are_its_arguments(run):
    launch = run('if [ "$2" = big ]; then TP=$1; fi', "8", "big")
    assert launch.arguments[0].text == "8"
    assert alongside(["repo/examples/big/run.sh", "8"]) == Path("repo/examples/big")
    Path("start").write_text("#!/usr/bin/env bash\ntorchrun x.py $2")
    assert read_launches(["start", "8", "--big"], {})[0].arguments[0].text == "--big"
    (launch,) = read_launches(["bash", "repo/examples/big/run.sh", "7", "big"], {})
    assert (launch.arguments[0].text, launch.arguments[0].place.line) == ("7", None)


def test_a_script_without_an_ending_is_known_by_its_path(run, tmp_path, monkeypatch):
    """In any folder, and not by a file of the name of a command that stands above."""
    start = tmp_path / "start"
    start.write_text("#!/bin/bash\ntorchrun x.py $1")
    inside = tmp_path / "repo" / "examples"
    monkeypatch.chdir(inside)
    assert read_launches([str(start), "8"], {})[0].arguments[0].text == "8"
    (tmp_path / "repo" / "torchrun").write_text("#!/bin/bash\n")
    assert read_launches(["torchrun", "x.py", "8"], {})[0].program.text == "x.py"


def test_a_file_that_the_script_writes_is_known_to_readers(run):
    launch = run('N=2; C=./ds.$ID.json\ncat <<EOT > $C\n{"a": $N}\nEOT\ntorchrun y.py --config $C')
    assert launch.files == {"ds.$ID.json": '{"a": 2}\n'}
    assert launch.arguments[-1].unresolved == ()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_at_once(tmp_path, make):
    make(tmp_path / "run.sh")
    with pytest.raises(FileError):
        read_launches([str(tmp_path / "run.sh")], {})
