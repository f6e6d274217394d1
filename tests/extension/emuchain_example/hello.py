"""A command."""

import click


@click.command()
@click.argument("name", default="world")
def hello(name: str) -> None:
    """Print a greeting to NAME."""
    print(f"hello {name}")
