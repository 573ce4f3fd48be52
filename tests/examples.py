"""Modules of the examples. They are no package: each imports those of its own folder by name."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def on_path(example: str) -> None:
    """Let the modules of an example be imported by name."""
    folder = str(ROOT / "examples" / example)
    if folder not in sys.path:
        sys.path.append(folder)


def script(example: str) -> ModuleType:
    """`run.py` of an example. Several have one, so its module bears the name of the example."""
    on_path(example)
    spec = spec_from_file_location(f"{example}.run", ROOT / "examples" / example / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
