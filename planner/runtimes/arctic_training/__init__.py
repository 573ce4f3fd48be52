"""ArcticTraining: its YAML file around that of DeepSpeed, written and read."""
