"""Hugging Face `config.json` -> `ModelSpec`: a line of a table for each family."""

from trainplan.costmodel.model.families.reading import Reading, model_from_config, read_config
