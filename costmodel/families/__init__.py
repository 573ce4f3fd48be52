"""Hugging Face `config.json` -> `ModelSpec`: a line of a table for each family.

Bridge: how Megatron-Bridge builds one architecture.
bridge_of: what builds a model there; null: nothing does.
model_from_config: read the content of a Hugging Face `config.json`.
NOT_MODELLED: `model_type` -> what it is.
notes_of: what is counted of a family but not priced, or differs from its code.
read_config: as `model_from_config`, with what was read and what was assumed.
Reading: a model, and how it was read.
"""

from trainplan.costmodel.families.bridges import Bridge, bridge_of
from trainplan.costmodel.families.reading import Reading, model_from_config, read_config
from trainplan.costmodel.families.registry import NOT_MODELLED, notes_of
