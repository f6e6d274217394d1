"""The command line: its frame, and a file for each command."""
