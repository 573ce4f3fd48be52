"""Room costmodel/model."""
