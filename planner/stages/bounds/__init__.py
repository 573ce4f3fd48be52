"""Lower bounds that hold for every split of the layers, for many layouts at once."""
