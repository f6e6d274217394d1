"""Runs: chains of devices on ranks, replicas, training, simulation, results."""
