"""Stand-ins for what no CPU has: packages that need CUDA, and the GPU itself."""

import abc
import importlib.abc
import importlib.machinery
import logging
import os
import sys
import types
import typing
import warnings
from collections.abc import Iterable
from pathlib import Path

import typing_extensions

TRANSFORMER_ENGINE = "2.14.0"


class _Anything(abc.ABCMeta):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)


class _Module(types.ModuleType):
    __path__: typing.ClassVar[list[str]] = []
    __version__ = TRANSFORMER_ENGINE

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        body = {
            "__init__": lambda *_, **__: None,
            "__class_getitem__": classmethod(lambda cls, _: cls),
        }
        made = _Anything(name, (), body)
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Iterable[str]):
        self.names = tuple(names)

    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(f"{one}.") for one in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def checkout(variable: str, package: str, below: str = "") -> Path:
    """The folder that a variable names; its package is imported from there, before installed ones.

    `below` is the folder in it that holds the package.
    """
    folder = Path(os.environ[variable]).resolve()
    if not (folder / below / package).is_dir():
        sys.exit(f"{variable} is {folder}, and there is no {Path(below) / package} in it")
    sys.path.insert(0, str(folder / below))
    return folder


def packages(*names: str) -> None:
    """From now on these import as modules that have every class, and do nothing."""
    sys.meta_path.insert(0, _Finder(names))


def gpu(capability: int) -> None:
    """A GPU of this generation, for those who ask which one it is."""
    import torch

    torch.cuda.get_device_capability = lambda *_, **__: (capability, 0)
    torch.cuda.get_device_properties = lambda *_, **__: types.SimpleNamespace(
        name="stand-in", major=capability, minor=0, total_memory=80 << 30, multi_processor_count=132
    )


def quiet() -> None:
    """No warnings, no logs; and `typing.override`, which Python has from 3.12 on."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override
