"""Room costmodel/step."""
