"""What is imported only when a command answers, so that its help page waits for none of it."""

import builtins
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Environment variable that numpy's library of products reads when it is loaded. Ours are small:
threads of it that wait for each other take the cores from the processes of a search. Source:
measured on two cores; a search of DeepSeek-V3 takes a twentieth less time on one thread."""


def named(target: str) -> Callable[..., object]:
    """`package.module:name` itself; its module is imported now."""
    path, _, name = target.partition(":")
    with _one_blas_thread():
        module = importlib.import_module(path)
    load(module)
    found: Callable[..., object] = getattr(module, name)
    return found


@dataclass(frozen=True, slots=True)
class Later:
    """Replaces a name of a module until `load` imports it."""

    module: str
    name: str


class _Unread:
    """A module of which every name replaces itself."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Later:
        return Later(self._module, name)


@contextmanager
def imported_on_answer() -> Iterator[None]:
    """`from module import name` in this block waits for `load`, as Python 3.15's `lazy` would.

    Until then its names serve for annotations alone. Source: PEP 810; `lazy_imports` of etils.
    """
    usual = builtins.__import__

    builtins.__import__ = lambda name, *_: _Unread(name)  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.__import__ = usual


def load(module: ModuleType) -> None:
    """Import what a module left in `imported_on_answer`."""
    names = vars(module)
    waiting = {name: one for name, one in names.items() if isinstance(one, Later)}
    with _one_blas_thread():
        for name, one in waiting.items():
            names[name] = getattr(__import__(one.module, fromlist=(one.name,)), one.name)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Load numpy here with one thread for products, unless the user states how many.

    Processes that are started later, such as those of `plan profile`, are given nothing.
    """
    if BLAS_THREADS in os.environ:
        yield
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[BLAS_THREADS]
