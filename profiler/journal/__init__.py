"""What a run measured so far: samples, how well their median is known, one record a line."""
