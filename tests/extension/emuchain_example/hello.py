"""A command."""

import click


@click.command()
@click.argument("name", default="world")
def hello(name: str) -> None:
    """Greet somebody by NAME."""
    print(f"hello {name}")
