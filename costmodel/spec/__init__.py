"""What every stated document is made of: frozen, unknown keys refused, its errors in plain words."""
