"""What it is trained on: boards in a chain and the links between neighbours; boards and clusters as TOML."""
