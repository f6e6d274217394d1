"""The list of all commands by what they are for, and those that have other names now."""

from __future__ import annotations

import click

from .named import FileGroup
from .output import tell

SECTIONS = {
    "Design": ("plan", "simulate", "sweep", "explore", "timeline", "schedule", "pipeline", "study"),
    "Train": ("train", "launch", "precision"),
    "Results": ("show", "report", "evaluate", "export", "retime"),
    "What there is": ("network", "cluster", "data"),
    "Hardware": ("rtl", "calibrate", "bench"),
    "Papers": ("validate",),
}
"""The commands of each section of the help."""
RENAMED = {
    "run": ("launch",),
    "compare": ("study", "compare"),
    "topology": ("study", "topology"),
    "exchange": ("study", "exchange"),
}
"""Earlier names of commands, which go on for this version with a note."""


class CommandGroup(FileGroup):
    """The group of all commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first words name, by its present name or an earlier one."""
        name = args[0] if args else ""
        if name in RENAMED and name not in self.commands:
            present = RENAMED[name]
            tell(f"emuchain: note: `emuchain {name}` is now `emuchain {' '.join(present)}`")
            args = [*present, *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section; those of none stand last."""
        listed = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in listed)
        longest = max(map(len, self.commands))
        for title, names in {**SECTIONS, "Others": others}.items():
            known = [(name, self.commands[name]) for name in names if name in self.commands]
            rows = [
                (name.ljust(longest), command.get_short_help_str(formatter.width - 6 - longest))
                for name, command in known
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
