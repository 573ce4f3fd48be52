"""What is imported only when a command answers, so that its help page waits for none of it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Environment variable that numpy's library of products reads when it is loaded. Ours are small:
threads of it that wait for each other take the cores from the processes of a search. Source:
measured on two cores; a search of DeepSeek-V3 takes a twentieth less time on one thread."""


def call(target: str, **values: object) -> object:
    """What `package.module:name` returns for these values; its module is imported now."""
    return named(target)(**values)


def named(target: str) -> Callable[..., object]:
    """`package.module:name` itself; its module is imported now."""
    module, _, name = target.partition(":")
    with _one_blas_thread():
        found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Load numpy here with one thread for products, unless the user says how many.

    Processes that are started later, such as those of `plan profile`, are told nothing.
    """
    if BLAS_THREADS in os.environ:
        yield
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[BLAS_THREADS]
