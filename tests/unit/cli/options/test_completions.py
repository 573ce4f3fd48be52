"""A shell knows every name that an option takes, at once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from tests.e2e.command import PLAN, plan
from tests.e2e.test_commands import HEAVY, command_of, commands, ours_that_answer
from trainplan.cli.main import plan as group
from trainplan.cli.options.parameters import Whole

FREE = {
    # numbers, durations, sizes, shares
    *("--tokens", "--slack", "--deadline", "--reserve", "--reserve-host", "--loss-tokens"),
    *("--budget", "--timeout", "--time-limit", "--memory-margin", "--attention-share"),
    *("--forward", "--input-grad", "--weight-grad", "--p2p", "--vocab-forward"),
    *("--vocab-backward", "--offload", "--nic", "--power-limit", "--price"),
    *("--restart", "--checkpoint", "--repair", "--lost", "--since-save"),
    *("--max-input", "--max-output"),
    # what only the user knows
    *("--runtime-version", "--rdzv-endpoint", "--source", "--set", "--command", "--stop-command"),
}
"""Options whose values are not names of ours."""


def completed(*words: str) -> list[str]:
    """What the last word may become."""
    found = ShellComplete(group, {}, "plan", "_PLAN_COMPLETE")
    return [item.value for item in found.get_completions(list(words[:-1]), words[-1])]


def kinds(*words: str) -> set[str]:
    found = ShellComplete(group, {}, "plan", "_PLAN_COMPLETE")
    return {item.type for item in found.get_completions(list(words[:-1]), words[-1])}


def options() -> Iterator[tuple[tuple[str, ...], click.Option]]:
    for path in commands(group):
        for each in command_of(path).params:
            if isinstance(each, click.Option) and not each.is_flag:
                yield path, each


@pytest.mark.parametrize(
    ("path", "option"),
    list(options()),
    ids=lambda one: one.opts[0] if hasattr(one, "opts") else "-".join(one),
)
def test_every_option_completes_its_values_or_is_a_number_or_free(
    path: tuple[str, ...], option: click.Option
):
    name = option.opts[0]
    numeric = isinstance(option.type, click.IntRange | click.types.FloatRange | Whole)
    if numeric or option.type in (click.INT, click.FLOAT) or name in FREE:
        return
    assert kinds(*path, name, ""), f"{' '.join(path)} {name} completes nothing"


def test_free_options_exist_and_complete_nothing():
    known = {option.opts[0]: path for path, option in options()}
    for name in FREE:
        assert completed(*known[name], name, "") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("search", "--model", "llama3.1-8"), ["llama3.1-8b"]),
        (("search", "--model", "qwen/qwen3-3"), ["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-32B"]),
        (("catalog", "models", "gpt2-"), ["gpt2-xl"]),
        (("catalog", "gpus", "h20"), ["h20", "h200-sxm", "h200", "h200-sxm5"]),
        (("search", "--cluster", "p5e"), ["p5e.48xlarge", "p5en.48xlarge"]),
        (("search", "--cluster", "8x8:mi35"), ["8x8:mi350x", "8x8:mi355x"]),
        (("check", "--cluster", "4xdgx-h"), ["4xdgx-h100", "4xdgx-h200"]),
        (("search", "--cluster", "8x8:h100@dgx-b"), ["8x8:h100@dgx-b200"]),
        (("search", "--cluster", "8xl4+8xl40"), ["8xl4+8xl40s"]),
        (("search", "--gpu", "gb3"), ["gb300"]),
        (("search", "--fix", "recompute_m"), ["recompute_modules=", "recompute_method="]),
        (
            ("search", "--fix", "recompute="),
            [f"recompute={x}" for x in ("none", "selective", "full")],
        ),
        (("search", "--exclude", "zero_stage="), [f"zero_stage={x}" for x in range(4)]),
        (("search", "--fix", "tower="), ["tower=unified", "tower=apart"]),
        (
            ("search", "--option", "attention="),
            [f"attention={kernel}" for kernel in ("flash", "flash2", "triton", "unfused")],
        ),
        (("tune", "--option", "liger"), ["liger="]),
        (("search", "--objective", "c"), ["cost", "context"]),
        (
            ("search", "--pareto", "memory,"),
            ["memory,time", "memory,cost", "memory,energy", "memory,gpus"],
        ),
        (("search", "--optimizer", "gal"), ["galore", "galore8bit"]),
        (("search", "--runtime", "torcht"), ["torchtitan"]),
        (("export", "--launcher", "py"), ["pytorchjob"]),
        (("estimate", "--layout", "tp=8,schedule=zb-1"), ["tp=8,schedule=zb-1p"]),
        (("sweep", "--vary", "gpu=mi300"), ["gpu=mi300x", "gpu=mi300"]),
        (("search", "--train", "frozen"), ["frozen:layers=", "frozen:tower"]),
        (("search", "--tower", "samples=4,frozen=e"), ["samples=4,frozen=encoder"]),
        (("schedule", "--kind", "al"), ["all"]),
    ],
)
def test_a_half_typed_name_becomes_those_that_begin_so(words: tuple[str, ...], expected: list[str]):
    assert completed(*words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ("search", "--model", "./mine"),
        ("search", "--cluster", "./mine"),
        ("explain", ""),
        ("search", "--profile", ""),
        ("search", "--output", ""),
    ],
)
def test_what_may_be_a_file_is_completed_as_one(words: tuple[str, ...]):
    assert kinds(*words) == {"file"}


def test_a_completion_imports_nothing_that_answers():
    program = (
        "import sys\nfrom trainplan.cli.main import main\ntry: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    wanted = {"_PLAN_COMPLETE": "bash_complete", "COMP_LINE": "plan search --fix recompute="}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **wanted},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain,none", "plain,selective", "plain,full"]
    found = set(done.stderr.split())
    assert not found & set(HEAVY)
    assert not ours_that_answer(found)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_behind_the_marks_it_breaks_words_at():
    script = plan("completion", "bash").out
    assert "env COMP_LINE" in script
    here = script.replace("env COMP_LINE", "COMP_LINE").replace('"$1"', "plan")
    ask = (
        'plan() { "$PYTHON" -c "$PROGRAM"; }\n'
        f"{here}"
        "compopt() { :; }\n"
        'COMP_LINE="$LINE" COMP_POINT=${#LINE}\n_plan_completion plan\necho "${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", ask],
        env={
            **os.environ,
            "PYTHON": PLAN[0],
            "PROGRAM": PLAN[2],
            "LINE": "plan search --cluster 8x8:h20",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["h20", "h200-sxm", "h200", "h200-sxm5"], done.stderr


def test_a_schema_completes_every_name_that_is_listed():
    listed = {line.split()[0] for line in plan("schema").out.splitlines()[1:] if line.strip()}
    assert set(completed("schema", "")) == listed
    assert completed("schema", "search-") == ["search-request"]
