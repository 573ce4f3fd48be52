"""Plans as whole files of the projects that people train with, over the runtimes they use.

Trainer: a project, the runtimes whose plans it takes, and what writes its files.
TRAINERS: every project whose files are written, by name.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.runtimes.trainers.registry import TRAINERS
    from trainplan.planner.runtimes.trainers.trainer import Trainer
else:
    __getattr__ = door(__name__)
