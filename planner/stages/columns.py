"""Matrices of splits into stages, named by their axes as in `costmodel.columns`."""

from trainplan.costmodel.columns import FloatColumn, IntColumn

StageRows = FloatColumn  # (stage, row)
PathRows = FloatColumn  # (path, row)
PathStageRows = FloatColumn  # (path, stage, row)
GroupKindRows = FloatColumn  # (group, kind, row)
PathStages = FloatColumn  # (path, stage)
PathStageKinds = FloatColumn  # (path, stage, kind)
RankKinds = FloatColumn  # (rank, kind)
RankLayers = FloatColumn  # (rank, layers)
StageKinds = FloatColumn  # (stage, kind)
SplitRanks = FloatColumn  # (split, rank)
SplitStages = FloatColumn  # (split, stage)
IntSplitRanks = IntColumn  # (split, rank)
IntSplitStages = IntColumn  # (split, stage)
SplitRankKinds = FloatColumn  # (split, rank, kind)
SplitStageKinds = FloatColumn  # (split, stage, kind)
