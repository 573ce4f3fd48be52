"""Functions of Python read from their text, against what running them gives where both can be."""

import time

import pytest

from trainplan.planner.runtimes.python_source import (
    Made,
    Raised,
    Symbol,
    Unread,
    defaults,
    found_in,
    module_of,
    returned,
)


def read(body, *, before="", others=None):
    """What a function with these lines returns."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    modules = {name: module_of(text, name) for name, text in (others or {}).items()}
    module = module_of(f"{before}\ndef f():\n{lines}", "own")
    return returned(module, "f", lambda name: None, modules.get)


PLAIN = [
    "return 2 * 3 + 8 // 3 - 7 % 4",
    "a, b = divmod(78 + 4, 16)\nreturn (a, b)",
    "x = [1]\nx.append(2)\nx += [3] * 2\nreturn x",
    "x = {'a': 1, **{'b': 2}}\nx['c'] = 3\nreturn x",
    "return [n * 2 for n in range(5) if n > 1]",
    "t = 0\nfor n in (1, 2, 3):\n    t = t + n\nreturn t",
    "t = {(4, 1): 'a', (8, 2): 'b'}\nreturn t[(8, 2)] if (8, 2) in t else None",
    "if 'lora'.upper().lower() in ['lora', 'dora']:\n    return 1\nreturn 2",
    "x = None\nreturn (x is None, not x, x or 4, 0 and 1, isinstance('a', str))",
    "return max([len('abc'), 2]) if 3 > 2 else min(1, 2)",
    "try:\n    return 1\nexcept ImportError:\n    return 2",
    "return int(True) + sum([1, 2]) + round(2.4)",
]


@pytest.mark.parametrize("body", PLAIN)
def test_plain_python_is_read_as_python_runs_it(body):
    names = {}
    exec("def f():\n" + "".join(f"    {line}\n" for line in body.splitlines()), names)
    assert read(body) == names["f"]()


@pytest.mark.parametrize(
    "body",
    [
        "return int(os.environ['TP'])",
        "return pick() + 1",
        "return [1][N]",
        "return {'a': 1}[KEY]",
        "return 2 ** 3000000",
        "return 'a' * 10 ** 9",
        "return [1] * 100000000",
        "x = []\nif pick():\n    x.append(1)\nreturn x[0]",
        "if pick():\n    return 1\nreturn 2",
        "while True:\n    return 1",
    ],
)
def test_what_only_a_run_would_tell_is_unread(body):
    assert isinstance(read(body), Unread)


def test_what_a_function_sets_within_an_open_branch_is_unread():
    """However deep: the attribute was set on one way and not on the other."""
    before = "def g(c):\n    c.degree = 4\n    c.sizes.append(2)\n"
    made = read("c = Config(degree=2, sizes=[1])\nif pick():\n    g(c)\nreturn c", before=before)
    assert isinstance(made.named["degree"], Unread)
    assert made.named["sizes"][0] == 1
    assert isinstance(made.named["sizes"][-1], Unread)


def test_a_branch_that_stops_is_not_one_of_a_run():
    assert read("if pick():\n    raise ValueError\nreturn 3") == 3
    stopped = read("if 3 > 2:\n    raise NotImplementedError('no adapters')\nreturn 3")
    assert isinstance(stopped, Raised)
    assert "no adapters" in stopped.text


def test_names_lead_through_modules_and_their_stars():
    others = {
        "lib.base": "SIZE = 4\ndef common():\n    return Config(degree=SIZE)\n",
        "lib": "from lib.base import *\nfrom lib.base import common as usual\n",
    }
    before = "import torch\nfrom lib import usual\nfrom lib import common as other\n"
    body = "c = usual()\nc.kind = torch.float32\nd = other()\nd.degree = 8\nreturn [c, d]"
    first, second = read(body, before=before, others=others)
    assert (first.named["degree"], second.named["degree"]) == (4, 8)
    assert first.named["kind"] == Symbol(7, "torch.float32")


def test_a_class_gives_what_was_not_set():
    others = {
        "lib": (
            "class Base:\n    width: int = 3\n"
            "    kinds: list = field(default_factory=lambda: ['a'])\n"
            "class Own(Base):\n    depth: int = field(default=7)\n    name: str\n"
        )
    }
    before = "from lib import Own\n"
    made = read("return Own(name='x')", before=before, others=others)
    lib = module_of(others["lib"], "lib")
    assert defaults(made, {"lib": lib}.get)["depth"] == 7
    assert defaults(made, {"lib": lib}.get) == {
        "width": 3,
        "kinds": ["a"],
        "depth": 7,
        "name": "x",
    }
    assert read("c = Own()\nreturn getattr(c, 'none', 5)", before=before, others=others) == 5


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return f()\n",
        "def f():\n    x = [1]\n" + "    x = [x, x]\n" * 60 + "    return x == x\n",
        "def f():\n    x = 'a'\n" + "    x = x + x\n" * 200 + "    return x\n",
        "def f():\n    x = [1]\n" + "    x = [*x, *x]\n" * 200 + "    return x\n",
        "def f():\n    x = [1]\n" + "    x.extend(x)\n" * 200 + "    return x\n",
        "def f():\n    return [" + "[" * 80 + "]" * 80 + " for a in range(9999)]\n",
        "from a import *\nfrom b import *\ndef f():\n    return g()\n",
    ],
    ids=["itself", "doubled", "text", "starred", "extended", "nested", "stars"],
)
def test_text_without_end_ends_soon(text):
    loop = {"a": module_of("from b import *\n", "a"), "b": module_of("from a import *\n", "b")}
    start = time.perf_counter()
    returned(module_of(text), "f", lambda name: None, loop.get)
    assert time.perf_counter() - start < 5


def test_a_name_that_is_nowhere_is_none():
    assert found_in(module_of("x = 1\n"), "g", lambda name: None) is None
    assert isinstance(read("return Made()"), Made)
