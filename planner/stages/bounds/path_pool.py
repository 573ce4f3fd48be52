"""What is known of pipelines by their shape: it holds for every layout of that shape."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainplan.costmodel.schedules.timeline.critical_path import Paths
from trainplan.planner.stages.bounds.mean_paths import Crossings, Pipeline, max_min_mean, seed_paths


@dataclass(frozen=True, slots=True)
class PathPool:
    """Paths of pipelines, and a mean of each, worked out when they are first asked for."""

    paths: dict[Pipeline, Paths] = field(default_factory=dict)
    means: dict[Pipeline, Crossings] = field(default_factory=dict)

    def of(self, pipeline: Pipeline) -> Paths:
        """Paths found so far; the first time, those through every stage."""
        if pipeline not in self.paths:
            self.paths[pipeline] = seed_paths(pipeline)
        return self.paths[pipeline]

    def mean(self, pipeline: Pipeline, num_layers: int) -> Crossings:
        """The fairest mean of the first paths, whatever was found since; for one model."""
        if pipeline not in self.means:
            seeds = seed_paths(pipeline)
            self.paths.setdefault(pipeline, seeds)
            self.means[pipeline] = max_min_mean(pipeline, seeds, num_layers)
        return self.means[pipeline]

    def add(self, pipeline: Pipeline, paths: Paths) -> None:
        """Take note of more paths."""
        self.paths[pipeline] = self.of(pipeline).joined(paths)

    def alone(self, pipeline: Pipeline) -> PathPool:
        """What is known of one pipeline, but for its mean."""
        known = self.paths.get(pipeline)
        return PathPool() if known is None else PathPool({pipeline: known})

    def learn(self, other: PathPool) -> None:
        """Take note of what was found elsewhere."""
        for pipeline, paths in other.paths.items():
            known = self.paths.get(pipeline)
            self.paths[pipeline] = paths if known is None else known.joined(paths)
        self.means.update(other.means)
