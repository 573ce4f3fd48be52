"""Room costmodel/pipeline."""
