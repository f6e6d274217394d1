"""Codecs of one interface for the gradients that travel; each is a file here."""
