"""A cut made by hand: which layers, or channels of layers, each board of the chain has, as text or
in a TOML file.

    conv1:conv3 | conv4[:30%] | conv4[30%:] fc1

has layers conv1 to conv3 on board 0, and conv4 split over boards 1 and 2. A file has a string for
each board:

    boards = ["conv1:conv3", "conv4[:30%]", "conv4[30%:] fc1"]

Channels are those along which the layer is cut (`slices.cut_of`), counted from 0; a share is
rounded to a whole one. Boards hold the layers in order, each channel once.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ..common import InputError, plural
from ..network import Network, layers_between
from .slices import Cut, Mapping, Slice, cut_channels, cut_of

_PIECE = re.compile(
    r"(?P<name>[\w-]+)(?::(?P<last>[\w-]+)|\[(?P<begin>[^:\]]*):(?P<end>[^:\]]*)\])?"
)
_BOUNDARY = re.compile(r"(\d+)|(\d+(?:\.\d+)?)\s*%")
_EXAMPLE = "such as `conv1:conv3 | conv4[:30%] | conv4[30%:] fc1`"
_BETWEEN_BOARDS = "|"
_MOST_NAMES = 12


@dataclasses.dataclass(frozen=True)
class HandmadeCut:
    """The pieces of each board in the order of the chain, as they are spelt; `file` is the one that
    has them.
    """

    boards: tuple[tuple[str, ...], ...]
    file: str | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def of(cls, said: object) -> HandmadeCut:
        """Return a cut from its text, the path of its TOML file, or a list of strings, one for each
        board.

        Raises:
            ValueError: it is none of these, or a piece has another form.
            InputError: the file cannot be read, or has other keys.
        """
        if isinstance(said, HandmadeCut):
            return said
        if isinstance(said, str) and said.lower().endswith(".toml"):
            return dataclasses.replace(cls.of(_boards_in(said)), file=said)
        boards = said.split(_BETWEEN_BOARDS) if isinstance(said, str) else said
        if not isinstance(boards, list | tuple) or not all(
            isinstance(board, str) for board in boards
        ):
            raise ValueError(f"should be FILE.toml, or what each board has, {_EXAMPLE}")
        for piece in itertools.chain.from_iterable(board.split() for board in boards):
            if _PIECE.fullmatch(piece) is None:
                raise ValueError(
                    f"{piece!r}: should be NAME, FIRST:LAST or NAME[BEGIN:END], {_EXAMPLE}"
                )
        return cls(tuple(tuple(board.split()) for board in boards))

    @classmethod
    def of_mapping(cls, mapping: Mapping) -> HandmadeCut:
        """Return the cut that a mapping has, with whole layers and channels."""
        return cls(tuple(tuple(_spelt(slices)) for slices in mapping.devices))

    def __str__(self) -> str:
        return f" {_BETWEEN_BOARDS} ".join(map(" ".join, self.boards))

    def toml(self) -> str:
        """Return the content of its TOML file."""
        lines = (f'  "{" ".join(pieces)}",' for pieces in self.boards)
        return "\n".join(["boards = [", *lines, "]", ""])

    def mapping(self, network: Network) -> Mapping:
        """Return the slices of each board.

        Raises:
            InputError: a layer is unknown; channels are on no board, on two, or out of order; a
                board has none.
        """
        held: list[list[Slice]] = [[] for _ in self.boards]
        for board, pieces in enumerate(self.boards):
            for piece in pieces:
                held[board] += self._slices(network, board, piece)
        self._check(
            network, [(board, part) for board, slices in enumerate(held) for part in slices]
        )
        if [] in held:
            near = held[held.index([]) - 1][-1].layer.name
            raise InputError(
                f"{self.blame}: board {held.index([])} has nothing, behind {near}; each needs a"
                " channel"
            )
        return Mapping(network, tuple(tuple(_joined(slices)) for slices in held))

    @property
    def blame(self) -> str:
        """The beginning of a message about it."""
        return f"`cut` = {self.file or str(self)!r}"

    def _slices(self, network: Network, board: int, piece: str) -> Iterator[Slice]:
        """Yield the slices that a piece names."""
        spelt = _PIECE.fullmatch(piece)
        assert spelt is not None  # see `of`
        name = spelt["name"]
        layers = layers_between(
            network, name, spelt["last"] or name, f"{self.blame}: board {board}"
        )
        if spelt["begin"] is None:
            yield from (Slice(layer, 0, cut_channels(layer)) for layer in layers)
            return
        [first] = layers
        channels = cut_channels(first)
        begin = self._boundary(board, piece, spelt["begin"].strip(), channels, 0)
        end = self._boundary(board, piece, spelt["end"].strip(), channels, channels)
        if not begin < end <= channels:
            kind = "output channel" if cut_of(first) is Cut.OCP else "input channel"
            raise InputError(
                f"{self.blame}: board {board}: {piece}: no channels, or more than there are;"
                f" {first.name} is cut at {plural(channels, kind)}, counted from 0"
            )
        yield Slice(first, begin, end)

    def _boundary(self, board: int, piece: str, said: str, channels: int, otherwise: int) -> int:
        if not said:
            return otherwise
        spelt = _BOUNDARY.fullmatch(said)
        if spelt is None:
            raise InputError(
                f"{self.blame}: board {board}: {piece}: {said!r} should be a channel or a share,"
                " such as 30%"
            )
        if spelt[1] is not None:
            return int(spelt[1])
        return int(Fraction(spelt[2]) * channels / 100 + Fraction(1, 2))

    def _check(self, network: Network, held: Sequence[tuple[int, Slice]]) -> None:
        """Check that slices, each with its board, are all channels in order, each once."""
        layer, channel = 0, 0
        for number, (board, part) in enumerate(held):
            name, begins = part.layer.name, (part.layer.index, part.begin)
            if begins > (layer, channel):
                for later, first in held[number:]:
                    if first.layer.index == layer and first.begin <= channel < first.end:
                        raise InputError(
                            f"{self.blame}: {_disorder((board, part), (later, first), network)}"
                        )
                until = part.begin if part.layer.index == layer else None
                raise InputError(
                    f"{self.blame}: {_missing(network, layer, channel, until)} on no board"
                )
            if begins < (layer, channel):
                # All channels ahead of this place are held, so that it has some of them again.
                other, earlier = next(one for one in held[:number] if _share_channels(one[1], part))
                shared = (
                    f"channels {max(earlier.begin, part.begin)} to {min(earlier.end, part.end)} of"
                    f" {name}"
                )
                raise InputError(
                    f"{self.blame}: {shared} are on board {other} and again on board {board}"
                )
            layer, channel = (
                (part.layer.index + 1, 0) if part.is_last else (part.layer.index, part.end)
            )
        if layer < len(network.layers):
            raise InputError(f"{self.blame}: {_missing(network, layer, channel, None)} on no board")


def _missing(network: Network, layer: int, channel: int, until: int | None) -> str:
    """Return what of a layer no board has, with its verb."""
    lacking = network.layers[layer]
    end = cut_channels(lacking) if until is None else until
    return (
        f"channels {channel} to {end} of {lacking.name} are"
        if channel or until is not None
        else f"{lacking.name} is"
    )


def _disorder(held: tuple[int, Slice], behind: tuple[int, Slice], network: Network) -> str:
    """Return that a slice comes before one that belongs ahead of it, each with its board, and the
    order of all.
    """
    (one, early), (other, late) = (
        (f"{next(_spelt([part]))} on board {board}", part) for board, part in (held, behind)
    )
    if early.layer is late.layer:
        return f"{one} comes before {other}; boards hold channels in order, from 0 on"
    names = [layer.name for layer in network.layers]
    order = names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 2], "…", names[-1]]
    return f"{one} comes before {other}; boards hold layers in order: {', '.join(order)}"


def _share_channels(one: Slice, other: Slice) -> bool:
    return one.layer is other.layer and one.begin < other.end and other.begin < one.end


def _joined(slices: Sequence[Slice]) -> Iterator[Slice]:
    """Yield a board's slices, one for each layer."""
    for _, parts in itertools.groupby(slices, key=lambda part: part.layer.index):
        first, *others = parts
        yield Slice(first.layer, first.begin, others[-1].end) if others else first


def _boards_in(file: str) -> object:
    """Return what a file has for its boards.

    Raises:
        InputError: it cannot be read, or has other keys.
    """
    from ..common import read_toml  # here, since ranks that follow do without pydantic

    keys = read_toml(pathlib.Path(file))
    if keys.keys() != {"boards"} or not isinstance(keys["boards"], list):
        raise InputError(
            f"{file}: should have one key, `boards`, with a string for each board, such as boards ="
            ' ["conv1", "fc1"]'
        )
    return keys["boards"]


def _spelt(slices: Sequence[Slice]) -> Iterator[str]:
    """Yield the pieces of a board: runs of whole layers, and channels of others."""
    for is_whole, run in itertools.groupby(slices, key=lambda part: part.is_first and part.is_last):
        parts = list(run)
        if is_whole:
            first, last = parts[0].layer.name, parts[-1].layer.name
            yield first if len(parts) == 1 else f"{first}:{last}"
        else:
            yield from (f"{part.layer.name}[{part.begin}:{part.end}]" for part in parts)
