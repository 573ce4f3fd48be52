"""Room costmodel/spec/evidence."""
