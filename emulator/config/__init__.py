"""The configuration of a run, as its file and its flags say it."""
