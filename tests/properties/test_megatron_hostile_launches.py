"""Whatever a launch holds, it is read or refused in sentences: nothing breaks and nothing runs."""

from random import Random

import pytest

from tests.launches import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.read.fields import READ
from trainplan.planner.runtimes.megatron_lm.read.parser import options

PLAIN = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 1 --vocab-size 1000"
)
NUMBERS = ("0", "-1", "1", "2", "7", "1e9", "nan", "inf", "65536", "999999999999", "9" * 5000)
LISTS = (
    "[1]",
    "([0]*3+[1]*5)",
    "([1]*65536)",
    "([1]*99999)*99999",
    "[[1]]",
    "([1]*-3)",
    "1,2",
    "(",
)
STAGES = ("E(t*1000000000)*9L", "Et*0000001000000000L", "E" + "(t|)*9" * 2000 + "L", "||", "E")
WORDS = (
    "",
    "x",
    "$X",
    "$(touch canary)",
    "fp8",
    "a2a",
    "-",
    "\n; true",
    "\x1b[31m",
    "__import__('os')",
)
VALUES = (*NUMBERS, *LISTS, *STAGES, *WORDS)
OPTIONS = tuple(options().values())
SOME = tuple(option for option in OPTIONS if option.dest in READ)


def words(random):
    """A plain launch, and a few options with values that are not theirs."""
    found = PLAIN.split()
    for _ in range(random.randint(1, 6)):
        option = random.choice(SOME if random.random() < 0.7 else OPTIONS)
        values = (*(option.choices or ()), *VALUES)
        count = random.choice((0, 1, 1, 1, 2)) if option.action == "store" else 0
        found += [option.flag, *(random.choice(values) for _ in range(count))]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_wrong_values_are_said_in_printable_sentences(seed):
    random = Random(seed)
    wanted = Request(cluster=parse_cluster("2x8:h100-sxm"))
    for _ in range(60):
        reading = MEGATRON_LM.read(launch(words(random)), random.choice((wanted, Request())))
        assert all(one.says.isprintable() for one in reading.problems)
        assert reading.legal or any(
            one.verdict in ("illegal", "unread") for one in reading.problems
        )


@pytest.mark.parametrize(
    "flag", ["--pipeline-model-parallel-layout", "--moe-layer-freq", "--num-layers"]
)
def test_a_word_of_a_megabyte_is_no_matter(flag):
    wanted = Request(cluster=parse_cluster("2x8:h100-sxm"))
    for text in ("t" * 1_000_000, "[" * 1_000_000, "1" * 1_000_000, "(" + "[1]*9+" * 160_000):
        reading = MEGATRON_LM.read(launch([*PLAIN.split(), flag, text]), wanted)
        assert not reading.legal
        assert all(len(one.says) < 400 for one in reading.problems)
