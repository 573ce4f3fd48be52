"""CP-SAT of OR-Tools, which an installation may be without: answers are then proved less."""

from importlib.util import find_spec

MISSING = "OR-Tools is not installed, `pip install 'trainplan[schedules]'` brings it"


def constraint_solver_is_there() -> bool:
    """Can models be built and solved?"""
    return find_spec("ortools") is not None
