"""Networks, clusters, mapping, schedules, training, simulation, results and the command line."""
