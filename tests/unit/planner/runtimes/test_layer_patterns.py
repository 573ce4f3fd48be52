"""Which layers have experts, as a launch or a file says it, against a list made here."""

from itertools import product

import pytest

from tests.launches import word
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.families.layers import _placed
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.mixtures import _ernie_dense
from trainplan.planner.runtimes.megatron_bridge.read_keys import LETTERS
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.moe import expert_layers, expert_places
from trainplan.planner.runtimes.megatron_lm.read.parser import parse

MOST = 8
MOE = MoeSpec(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=512)
PATTERNS = [one for n in range(1, MOST + 1) for one in product((False, True), repeat=n)]


def ways_of(pattern):
    """Every (leading dense layers, period) that makes the pattern, by writing all of them out."""
    for first, every in product(range(len(pattern) + 1), range(1, len(pattern) + 2)):
        layers = [False] * first
        while len(layers) < len(pattern):
            layers += [False] * (every - 1) + [True]
        if tuple(layers[: len(pattern)]) == pattern:
            yield first, every


def given(text):
    arguments, problems = parse([word("--moe-layer-freq"), word(text)])
    assert not problems
    return arguments


def test_every_pattern_of_up_to_eight_layers_is_read_as_one_that_makes_it():
    """Of those that leading layers and a period make; the others are read as experts everywhere."""
    for pattern in PATTERNS:
        ways = [*ways_of(pattern)]
        found = expert_places(pattern)
        assert found in ways or (not ways and found == (0, 1)), (pattern, found, ways)
        placed = MOE.model_copy(
            update={"first_k_dense_replace": found[0], "moe_layer_freq": found[1]}
        ).placed(len(pattern))
        assert not ways or tuple(one == "moe" for one in placed) == pattern


def test_a_list_of_layers_of_a_file_is_written_short_only_where_that_is_the_same():
    for pattern in PATTERNS:
        if not any(pattern):
            continue
        feeds = tuple("moe" if one else "mlp" for one in pattern)
        short = _placed(MOE, feeds)
        if short != MOE:
            assert short.placed(len(pattern)) == feeds
        start = pattern.index(True)
        periodic = all(one == (i % (start + 1) == start) for i, one in enumerate(pattern))
        assert (short != MOE) == (start > 0 and (periodic or all(pattern[start:])))


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("1", [1] * 7),
        ("2", [1, 0, 1, 0, 1, 0, 1]),
        ("3", [1, 0, 0, 1, 0, 0, 1]),
        ("9", [1, 0, 0, 0, 0, 0, 0]),
        ("[0,1,1,0,1,1,0]", [0, 1, 1, 0, 1, 1, 0]),
        ("([0]*3+[1]*4)", [0, 0, 0, 1, 1, 1, 1]),
        ("([0]+[1]*2)*2+[1]", [0, 1, 1, 0, 1, 1, 1]),
        ("[0]*1+[1]*5+[0]", [0, 1, 1, 1, 1, 1, 0]),
    ],
)
def test_a_number_a_list_and_an_expression_say_the_same_layers_as_python_does(text, layers):
    """A number n: the first of every n layers, i % n == 0, as Megatron-LM counts."""
    number = eval(text)
    own = number if isinstance(number, list) else [int(i % number == 0) for i in range(7)]
    assert own == layers
    assert [*map(int, expert_layers(given(text), 7))] == layers


def test_without_the_option_every_layer_has_experts():
    arguments, _ = parse([])
    assert keys.EXPERT_LAYERS not in arguments
    assert expert_layers(arguments, 5) == (True,) * 5


@pytest.mark.parametrize("count", range(1, 6))
def test_experts_from_a_first_to_a_last_layer_are_those_of_every_nth(count):
    """Of ERNIE 4.5: the last of every n, counted from the front of the model; -1: to its end."""
    for first, last, every in product(range(count + 1), (None, *range(-1, count)), range(1, 4)):
        fields = {"moe_layer_start_index": first, "moe_layer_interval": every}
        fields |= {"num_hidden_layers": count, "moe_layer_end_index": last}
        every_nth = [i for i in range(count) if (i + 1) % every == 0]
        end = count - 1 if last in (None, -1) else last
        dense = [i not in every_nth or i < first or i > end for i in range(count)]
        assert list(_ernie_dense(HfConfig("a test", "ernie4_5_moe", fields))) == dense, fields


def test_letters_of_a_recipe_stand_for_the_initials_of_an_option():
    for letters, option in LETTERS.items():
        initials = iter(word[0] for word in option.strip("-").split("_"))
        if letters != "-etp":
            assert all(letter in initials for letter in letters.strip("-")), letters
    assert LETTERS["-etp"] == "--expert_tensor_parallel_size"
    others = {option for letters, option in LETTERS.items() if letters != "-et"}
    assert len(others) == len(LETTERS) - 1
    assert LETTERS["-et"] == LETTERS["-etp"]  # of the benchmarks
