"""Files of the user, read and written here alone: strict JSON and YAML, models, profiles."""
