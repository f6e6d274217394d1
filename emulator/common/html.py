"""Small tables in HTML, which notebooks show in place of `repr`."""

from __future__ import annotations

from collections.abc import Sequence


def html_table(title: str, rows: Sequence[Sequence[str]], columns: Sequence[str] = ()) -> str:
    """Return a table under its title; the first cell of each row is its name."""
    from html import escape

    left, right = ' style="text-align: left"', ' style="text-align: right"'

    def line(cells: Sequence[str], tag: str) -> str:
        first, *others = cells
        named = f"<th{left}>{escape(first)}</th>"
        return f"<tr>{named}{''.join(f'<{tag}{right}>{escape(cell)}</{tag}>' for cell in others)}</tr>"

    head = line(columns, "th") if columns else ""
    body = "".join(line(row, "td") for row in rows)
    return f'<table><caption style="text-align: left">{escape(title)}</caption>{head}{body}</table>'
