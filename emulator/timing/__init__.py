"""When: the virtual time of engines and links, as pure functions of mapping and cluster."""
