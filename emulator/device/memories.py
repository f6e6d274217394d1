"""A board's memories under FPDeep's names (section 5.2.2): Act-RAM, LPRAM and LGB, BPRAM and BGB;
and first weights.

Act-RAM has input activations, LPRAM a device's own parameters and LGB the sums of their gradients;
BPRAM has parameters that a device stores for another one, and BGB the sums of theirs (Fig. 6).

There is an array for each version of the weights; older versions are kept while actions still need
them. The schedule determines which ones (`schedule/versions.py`); usually there is one, which
updates overwrite. All are from an arena, so that a new version takes the memory of one that is
gone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ..mapping import BalancedParameters
from ..network import NORMAL_DEVIATION, Layer, Start
from ..schedule import SpanStore
from .formats import MapFormats
from .rules import Rule
from .weight_formats import ParameterFormats, SliceFormats, WeightFormats


class ActRam(SpanStore):
    """Arrays of micro-batches in memory from an arena; also holds other arrays until EB or PG."""

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena.take)


Data = NDArray[np.float32]
MASTER, TURNED = "master", "turned"
"""What is kept of weights beside their value: what updates change, and what EB reads, if by
chance.
"""
Arrays = Mapping[str, Data]
"""What training keeps of one parameter, by name and all of one shape: its value, and what its
updates remember.
"""

State = Mapping[str, Arrays]
"""What training keeps of a slice or a layer, by the names of its parameters and moving averages."""


class Versions:
    """The versions of one array in memory from an arena; version 0 is `first`."""

    def __init__(self, first: Data, arena: Arena) -> None:
        self._arena = arena
        self._held = {0: first}
        self._newest = 0

    def __len__(self) -> int:
        """Return the number of versions that are kept."""
        return len(self._held)

    def __getitem__(self, version: int) -> Data:
        return self._held[version]

    @property
    def newest(self) -> Data:
        """The array after the last update."""
        return self._held[self._newest]

    @property
    def number(self) -> int:
        """The number of the newest version."""
        return self._newest

    def advance(self, *, keeps: bool) -> Data:
        """Begin the next version and return its array: the newest one's, or a copy of it if
        `keeps`.
        """
        before = self.newest
        # What still uses the older version needs its numbers; if nothing does, the update
        # overwrites them.
        following = copied(before, self._arena) if keeps else before
        if not keeps:
            del self._held[self._newest]
        self._newest += 1
        self._held[self._newest] = following
        return following

    def repeat(self, *, keeps: bool) -> None:
        """Begin the next version with the newest one's array, which does not change."""
        # Versions may share an array: an update copies it if one of them is still to be used.
        newest = self.newest
        if not keeps:
            del self._held[self._newest]
        self._newest += 1
        self._held[self._newest] = newest

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        for version in versions:
            del self._held[version]

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._held, self._newest = {0: self.newest}, 0

    def state(self) -> Arrays:
        """Return the training state, copied: the value; call only when there is one version."""
        return {"value": self.newest.copy()}

    def restore(self, state: Arrays) -> None:
        """Restore what `state` returned."""
        self.newest[...] = state["value"]


def copied(array: Data, arena: Arena) -> Data:
    """Return a copy in memory from an arena."""
    copy: Data = arena.take(array.shape)
    copy[...] = array
    return copy


def zeros_like(array: Data, arena: Arena) -> Data:
    """Return zeros of the same shape in memory from an arena."""
    zeros: Data = arena.take(array.shape)
    zeros[...] = 0
    return zeros


class Parameter:
    """An array of parameters by version, and the sum of its gradients since the last update (LGB);
    all from an arena.

    `states` are the arrays that the update rule keeps, by name, of the value's shape; {} before the
    first update. With `formats` that differ, updates change a master copy, from which the value is
    rounded. Where replicas share updates out (ZeRO), states and master copy are those of this
    one's share alone, in a row.
    """

    def __init__(self, value: Data, arena: Arena, formats: ParameterFormats | None = None) -> None:
        self._arena, self.formats = arena, formats
        self.versions = Versions(copied(value, arena), arena)
        self._master = copied(value, arena) if formats is not None and formats.has_master else None
        self.gradient = zeros_like(value, arena)
        self.states: dict[str, Data] = {}
        self._older_scales: dict[int, int] = {}
        self._share: NDArray[np.int64] | None = None
        self._is_summed = False
        self._begin(value)

    def __getitem__(self, version: int) -> Data:
        return self.versions[version]

    @property
    def newest(self) -> Data:
        """Value after the last update."""
        return self.versions.newest

    @property
    def trained(self) -> Data:
        """What updates change: the master copy, if there is one, or the value."""
        return self.newest if self._master is None else self._master

    def share_out(self, places: NDArray[np.int64]) -> None:
        """Update only what is at these places of the flat array from now on; before any update."""
        self._share = places
        if self._master is not None:
            self._master = self._own(self._master)

    def begins_sum(self) -> bool:
        """Return whether the next gradient is the first since the update; the buffer's content is
        then invalid.
        """
        begins, self._is_summed = not self._is_summed, True
        return begins

    def repeat(self, *, keeps: bool) -> None:
        """Make the next version without an update."""
        self._keep_scale()
        self.versions.repeat(keeps=keeps)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version from the mean of the gradients over `samples` (FPDeep, section
        5.2.2); of a share, the values of others are yet to come.
        """
        self._keep_scale()
        if rule.is_skipped:
            self._begin_states(
                rule, self._own(self.newest) if self._master is None else self._master
            )
            self.versions.repeat(keeps=keeps)
            self._is_summed = False
            return
        # Without a gradient since the last update the buffer still has the sum of that one.
        if self.begins_sum():
            self.gradient[...] = 0
        value = self.versions.advance(keeps=keeps)
        trained = self._own(value) if self._master is None else self._master
        gradient = self._own(self.gradient)
        self._begin_states(rule, trained)
        before = None if self.formats is None else copied(trained, self._arena)
        if (
            rule.factor != 1
        ):  # clipped before it is rounded: formats are those of what the update takes
            gradient *= np.float32(rule.factor)
        if self.formats is not None:
            # A gradient with a format was rounded as a mean, and is not divided again.
            rule, samples = (
                self._mean(rule, gradient, samples),
                1 if self.formats.rounds("gradients") else samples,
            )
        rule.update(trained, gradient, self.states, samples)
        if rule.rounding is not None:
            flat = trained.reshape(-1)
            flat[...] = rule.rounding.decompress(rule.rounding.compress(flat), flat.size)
        if self._share is None:
            self._round(value, rule.number)
        else:
            self._round_share(value, trained, rule.number)
        if self.formats is not None and before is not None:
            moved = self.formats.moved if self._share is None else self.formats.moved_share
            moved(before, trained)
        self._is_summed = False

    def _begin_states(self, rule: Rule, trained: Data) -> None:
        """Make what updates remember of what they change, at the first one."""
        if not self.states:
            self.states = {name: zeros_like(trained, self._arena) for name in rule.states}

    def begin_scale(self) -> None:
        """Begin the scale of the value, unless updates before have told it."""
        assert self.formats is not None
        self.formats.begin_scale(self.trained)

    @property
    def scale(self) -> int:
        """The exponent of the scale of the newest value."""
        assert self.formats is not None
        return self.formats.maps.scales.running(self.formats.scale_name)

    def scale_of(self, version: int) -> int:
        """Return the exponent of the scale of a version of the value; 0 without one."""
        if self.formats is None or not self.formats.has_scale:
            return 0
        return self._older_scales.get(version, self.scale)

    def _keep_scale(self) -> None:
        """Keep the scale of the newest version, as another one begins."""
        self._older_scales[self.versions.number] = self.scale_of(self.versions.number)

    @property
    def needed_scale(self) -> int | None:
        """The exponent of the scale that the newest weights would need; None if all are 0."""
        assert self.formats is not None
        return self.formats.maps.scales.newest(self.formats.scale_name)

    def hear_scale(self, exponent: int | None) -> None:
        """Take what those of all slices need."""
        assert self.formats is not None
        self.formats.maps.scales.hear(self.formats.scale_name, exponent)

    def _own(self, array: Data) -> Data:
        """Return what of an array is updated here: all of it, or a copy of the share."""
        return array if self._share is None else array.reshape(-1)[self._share]

    def _whole(self, own: Data) -> Data:
        """Return a copy of what is updated here; of a share, with zeros in all other places."""
        if self._share is None:
            return own.copy()
        whole = np.zeros(self.newest.shape, np.float32)
        whole.reshape(-1)[self._share] = own
        return whole

    def _mean(self, rule: Rule, gradient: Data, samples: int) -> Rule:
        """Round the gradient, as the mean over `samples`, if it has a format; return the rule of
        what it is then.
        """
        assert self.formats is not None
        if not self.formats.rounds("gradients"):
            return rule
        gradient *= np.float32(1 / (samples * rule.loss_scale))
        if not rule.exchanged:
            self.formats.round("gradients", gradient, rule.number)
        return dataclasses.replace(rule, loss_scale=1)

    def _begin(self, value: Data) -> None:
        """Begin with a value, from which its copies are rounded: all of it, whatever the share."""
        formats = self.formats
        if formats is None:
            return
        trained = self.newest if self._master is None else copied(value, self._arena)
        formats.round("master", trained, 0)
        if self._master is not None:
            formats.round("weights", trained, 0, out=self.newest)
            self._master[...] = self._own(trained)

    def _round(self, value: Data, number: int) -> None:
        """Round all that update `number` has changed, and take the value from the master copy, if
        there is one.
        """
        formats = self.formats
        if formats is None:
            return
        trained = value if self._master is None else self._master
        formats.round("master", trained, number)
        for place, state in enumerate(self.states.values()):
            formats.round("states", state, number, place)
        if self._master is not None:
            formats.round("weights", self._master, number, out=value)

    def _round_share(self, value: Data, trained: Data, number: int) -> None:
        """Round what update `number` has changed of a share, where it lies among the others, and
        put it into the value.
        """
        self._round_own("master", trained, number)
        for place, state in enumerate(self.states.values()):
            self._round_own("states", state, number, place)
        made = trained
        if self._master is not None:
            made = trained.copy()
            self._round_own("weights", made, number)
        value.reshape(-1)[self._share] = made

    def _round_own(self, kind: str, own: Data, number: int, place: int = 0) -> None:
        if self.formats is not None and self.formats.rounds(kind):
            whole = self._whole(own)
            self.formats.round_share(kind, own.size, whole, number, place)
            own[...] = self._own(whole)

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        self.versions.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._older_scales.clear()
        self.versions.begin_epoch()

    def state(self) -> Arrays:
        """Return the training state, copied: value, and what the rule keeps, of a share with zeros
        around it; call only when there is one version.
        """
        master = {} if self._master is None else {MASTER: self._whole(self._master)}
        return {
            **self.versions.state(),
            **master,
            **{name: self._whole(array) for name, array in self.states.items()},
        }

    def restore(self, state: Arrays) -> None:
        """Restore what `state` returned, or begin with a value of another run."""
        self.versions.restore(state)
        kept = {name: array for name, array in state.items() if name not in ("value", MASTER)}
        self.states = {name: copied(self._own(array), self._arena) for name, array in kept.items()}
        if MASTER not in state:  # of a run with one array alone: copies are rounded from it anew
            self._begin(self.newest.copy())
            for place, array in enumerate(self.states.values()):
                self._round_own("states", array, 0, place)
        elif self._master is not None:
            self._master[...] = self._own(state[MASTER])


def initial_weights(
    layer: Layer,
    start: Start,
    seed: int,
    in_channels: Sequence[int],
    out_channels: Sequence[int],
) -> NDArray[np.float32]:
    """Return the weights of a slice, (its output channels, its input channels, kh, kw).

    He: normal with variance 2 / fan-in where a ReLU follows, which halves the variance, else 1 /
    fan-in (He et al., 2015; `SfuOperation.he_gain`). Xavier: uniform with variance 2 / (fan-in +
    fan-out) (Glorot and Bengio, 2010). Normal: with deviation 0.02, as transformers begin (Radford
    et al., 2018). A tied layer has its embedding's. A layer's own rule is uniform within 1 / the
    root of fan-in, as PyTorch's layers and PEFT's adapters begin, or 0.
    """
    if layer.tied is not None:
        # Symbols are the inputs of an embedding, and the outputs of its head.
        return initial_weights(layer.tied, start, seed, out_channels, in_channels).swapaxes(0, 1)
    oc, ic, kh, kw = layer.weight_shape
    fan_in, fan_out = ic * kh * kw, oc * kh * kw
    gain = max((step.operation.he_gain for step in layer.sfu), default=1.0)
    rule = layer.start or start
    weights = np.zeros((len(out_channels), len(in_channels), kh, kw), np.float32)
    for place, channel in enumerate(in_channels if rule != "zero" else ()):
        # A stream for each input channel, of all output channels: so a slice draws what the whole
        # layer would have.
        stream = np.random.Generator(np.random.Philox(key=[seed, layer.stream << 32 | channel]))
        if rule == "he":
            drawn = stream.standard_normal((oc, kh, kw)) * math.sqrt(gain / fan_in)
        elif rule == "normal":
            drawn = stream.standard_normal((oc, kh, kw)) * NORMAL_DEVIATION
        else:
            limit = math.sqrt(6 / (fan_in + fan_out) if rule == "xavier" else 1 / fan_in)
            drawn = stream.uniform(-limit, limit, (oc, kh, kw))
        weights[:, place] = drawn[out_channels[0] : out_channels[-1] + 1]
    return weights


class Bpram:
    """One block of balanced parameters on the device that stores it; values are sent as maps (1, 1,
    1, values).
    """

    def __init__(
        self,
        block: BalancedParameters,
        start: Start,
        seed: int,
        arena: Arena,
        formats: MapFormats | None = None,
    ) -> None:
        self.part = part = block.part
        weights = initial_weights(block.layer, start, seed, part.weight_inputs, part.out_channels)
        own = None
        if formats is not None:
            own = SliceFormats(WeightFormats(formats.of(part.layer.formats), part))
        self._parameter = Parameter(weights, arena, own)

    def mean_gradient(self, gradient: Data, scale: float, number: int) -> Data:
        """Return a sum of gradients times `scale`, of update `number`, in the format of
        gradients.
        """
        mean = gradient.reshape(self._parameter.gradient.shape) * np.float32(scale)
        if self._parameter.formats is not None:
            self._parameter.formats.round("gradients", mean, number)
        return mean

    def update(self, gradient: Data, samples: int, rule: Rule) -> Data:
        """Update from the sum of gradients over `samples` samples; return the new weights, (1, 1,
        1, values).
        """
        parameter = self._parameter
        # The sum is whole already: without this call `update` would take the buffer for old, and
        # clear it.
        parameter.begins_sum()
        parameter.gradient[...] = gradient.reshape(parameter.gradient.shape)
        parameter.update(samples, rule, keeps=False)
        return parameter.newest.reshape(1, 1, 1, -1)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._parameter.begin_epoch()

    @property
    def averages(self) -> Mapping[str, Versions]:
        """None: averages belong to the SFU."""
        return {}

    def state(self) -> State:
        """Return what training keeps, copied: of weights (output channels, input channels, kh,
        kw).
        """
        return {"weight": self._parameter.state()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        self._parameter.restore(state["weight"])
