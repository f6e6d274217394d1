"""A page of one run or several, from their results."""

from __future__ import annotations

from collections.abc import Sequence

from .... import __version__
from .answer import comparing_headline, comparison, devices_of, figures, headline
from .convergence import convergence
from .gradients import gradients
from .links import links
from .memory import memory
from .parts import Page, RunPart, Section
from .roofs import roofs
from .settings import settings
from .source import Run
from .timeline import timeline
from .utilisation import utilisation

_OF_A_RUN = (roofs, utilisation, links, memory, gradients, timeline, settings)


def make_page(runs: Sequence[Run]) -> Page:
    """Return the page of one run or several, the answer first."""
    parts = tuple(_part(run) for run in runs)
    curves = convergence(runs)
    shared = () if curves is None else (curves,)
    if len(runs) == 1:
        return Page(parts[0].title, parts[0].headline, (), shared, parts, __version__)
    networks = list(dict.fromkeys(run.network for run in runs))
    title = f"{len(runs)} runs of {', '.join(networks[:3])}{' …' if len(networks) > 3 else ''}"
    return Page(title, comparing_headline(runs), (comparison(runs),), shared, parts, __version__)


def _part(run: Run) -> RunPart:
    sections: list[Section] = [found for make in _OF_A_RUN if (found := make(run)) is not None]
    return RunPart(run.name, f"{run.network} on {devices_of(run)}", headline(run), figures(run), tuple(sections))
