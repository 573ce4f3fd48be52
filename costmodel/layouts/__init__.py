"""Room costmodel/layouts."""
