"""A number without a source does not merge."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from trainplan import costmodel
from trainplan.costmodel import catalog
from trainplan.costmodel.layouts import table

ROOT = Path(__file__).parents[2]
SOURCE = re.compile(r"Source:\s+(.*?)(?=\n\s*\n|Source:|\Z)", re.DOTALL)
PUBLISHED = re.compile(r"arXiv:|https?://|\bet al\b|\bsection\b|\b(?:19|20)\d\d\b|@[0-9a-f]{7}")
FOREIGN_FILE = re.compile(r"[\w/-]+\.(?:py|cc|cpp|cu|h|ya?ml)\b|--[a-z-]+")
FOLDERS = "docs|examples|tests|costmodel|planner|profiler|cli"
OWN_FILE = re.compile(rf"(?<![\w/])(?:{FOLDERS})/[\w./-]*\w")
FOREIGN_REPOSITORY = re.compile(rf"(?<!\S)(?!(?:{FOLDERS})/)[\w-]+/[\w.-]+ ")
MEASURED = re.compile(r"measured|assumed|tried|\btrace\b|\d %|\d (?:us|ms|s)\b|\b[AHB]\d00\b")
MANUAL = re.compile(r"\bmanual\b|\bman \w|[Gg]uide|NVIDIA|Megatron-LM|eth-easl|its error message")
REFERENCE = re.compile(
    r"`[\w.]+`|\b[A-Z]+_[A-Z_]+\b|\bas (?:there|above|below|the class|in an estimate)\b"
    r"|\bth(?:at|ose) of\b|\b(?:the|this) module\b|head of this file|\bthe constants\b"
)
WORDS_OF_A_DERIVATION = 12
"""About two lines, fewer do not let a reader check anything."""


def members(module):
    """Functions, methods and properties written in a module."""
    for name, value in inspect.getmembers(module):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            for attribute, method in vars(value).items():
                function = method.fget if isinstance(method, property) else method
                if inspect.isfunction(function):
                    yield f"{name}.{attribute}", function


def returns_columns(function):
    """Does it return a column or matrix of numbers, or some in a tuple?"""
    returned = str(function.__annotations__.get("return")).removeprefix("tuple[")
    kinds = [function.__globals__.get(name) for name in re.findall(r"\w+", returned)]
    return "..." not in returned and all(kind == table.FloatColumn for kind in kinds)


def formulas():
    for info in pkgutil.walk_packages(costmodel.__path__, "trainplan.costmodel."):
        module = importlib.import_module(info.name)
        for name, function in members(module):
            if returns_columns(function):
                yield pytest.param(function, id=f"{info.name}.{name}")


def test_formulas_are_found():
    assert len(list(formulas())) > 40


@pytest.mark.parametrize("function", list(formulas()))
def test_every_formula_has_a_source(function):
    assert "Source:" in (function.__doc__ or "")


def sources(text):
    """What a text gives as its sources, one after the other."""
    return [" ".join(found.split()) for found in SOURCE.findall(text)]


def exists(path):
    """Is it a file of the repository, or the beginning of the name of one?"""
    return (ROOT / path).exists() or any(ROOT.glob(f"{path}*"))


def is_real(source):
    """Is it a publication, a file, a measurement, another formula, or a derivation to check?"""
    own = [] if FOREIGN_REPOSITORY.search(source) else OWN_FILE.findall(source)
    if not all(map(exists, own)):
        return False
    written = re.sub(r"\b(?:the module; )?derived\b[,.:;]?", "", source, flags=re.IGNORECASE)
    known = (PUBLISHED, MEASURED, MANUAL, FOREIGN_FILE, OWN_FILE, REFERENCE)
    return (
        any(kind.search(written) for kind in known) or len(written.split()) >= WORDS_OF_A_DERIVATION
    )


def modules():
    folders = ("costmodel", "planner", "profiler", "cli", "examples")
    files = (path for name in folders for path in sorted((ROOT / name).rglob("*.py")))
    return [path for path in files if "ource" in path.read_text("utf-8")]


def texts(path):
    """Strings of a module that name a source; those of rules are the whole string."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from sources(str(node.value.value))
        if isinstance(node, ast.keyword) and node.arg == "source":
            value = node.value.value if isinstance(node.value, ast.Constant) else ""
            yield from [value] if "derived" in str(value) else []


@pytest.mark.parametrize("name", catalog.fitted_constants())
def test_no_prior_comes_from_the_runs_that_the_fit_sees(name):
    source = catalog.fitted_constants()[name].source
    assert not re.search(r"hand-set|these (?:\w+ )?runs|earlier release|fit\.py", source)


@pytest.mark.parametrize("gpu", catalog.gpu_names())
def test_the_speed_of_low_precisions_begins_with_measured_products(gpu):
    fit = catalog.fitted(gpu).gemm.get("fp8_training")
    assert fit is None or "TFLOP" in fit.source or re.search(r"\d of \d{4} of peak", fit.source)


def test_a_source_is_one_that_a_reader_can_check():
    wrong = {path: [one for one in texts(path) if not is_real(one)] for path in modules()}
    assert len(wrong) > 400
    assert {str(path): of for path, of in wrong.items() if of} == {}


@pytest.mark.parametrize(
    "source",
    [
        "",
        "derived.",
        "their sum.",
        "derived, their sum.",
        "the module; derived.",
        "derived, docs/explanation/no-such-page.md.",
        "docs/decisions/9999.",
    ],
)
def test_a_word_is_no_source(source):
    assert not is_real(source)


@pytest.mark.parametrize(
    "source",
    [
        "derived; Qi et al., arXiv:2401.10241, section 3.2.",
        "derived, docs/explanation/search.md.",
        "docs/decisions/0011.",
        "as `place_ends`.",
        "derived: each logit is read twice and written once, and 4 of its 6 bytes are in a cache.",
    ],
)
def test_a_paper_a_page_another_formula_and_a_derivation_are_sources(source):
    assert is_real(source)
