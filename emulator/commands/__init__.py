"""The command line: its frame, and a module for each command."""
