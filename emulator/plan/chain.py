"""What a configuration makes of a cluster: how boards execute, in what formats, and how many stages
and replicas.

How boards execute and when messages leave them is the cluster's (`[machine]`), whatever the
schedule. With engines of their own for FP, EB and PG and rows that are streamed, boards are
FPDeep's, whose times are those of rows (`timing.Timing`); on all others, actions are timed as a
whole (`timing.StageClock`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

from ...comm import Switch
from ...comm.collective import CollectiveError
from ...comm.collective import check as check_collective
from ...comm.exchange import DataParallel, sums_once
from ...kernels.number import WIDE_BITS, BlockGrid, FloatGrid
from ..cluster import Board, Cluster, Fpga, Link, OnBoard
from ..common import InputError, plural
from ..faults import Faults
from ..mapping import cut_pieces
from ..network import Layer, Network, Recurrent, engine_classes
from ..network.operations.attention import Attention
from ..number import OF_WEIGHTS, Precision, check_dots, sum_bits
from ..schedule import (
    Backward,
    EditedKind,
    Engines,
    Fold,
    Machine,
    ScheduleKind,
    Transport,
    warm_ups,
)
from .zero import check_micro_batches

if TYPE_CHECKING:
    from ..config import Config


_SUITS = {
    Engines.SPLIT: Transport.STREAMED,
    Engines.SHARED: Transport.HIDDEN,
    Engines.TURNS: Transport.STORED,
}
"""The transport of a cluster that names none."""


def machine_of(cluster: Cluster, kind: ScheduleKind) -> Machine | None:
    """Return how a cluster's boards and links work under a kind of schedule; None if they are
    FPDeep's.

    Raises:
        InputError: rows are to be streamed from engines that have no time for each row.
    """
    engines = Engines(cluster.engines)
    transport = Transport(cluster.transport) if cluster.transport else _SUITS[engines]
    if transport is Transport.STREAMED:
        if engines is Engines.SPLIT:
            return None
        raise InputError(
            "`transport` = 'streamed': rows leave engines that are split, and these are"
            f" {engines.value}; should be 'stored' or 'hidden'"
        )
    backward = Backward.SPLIT if kind.splits_backward else Backward.FUSED
    return Machine(engines, transport, backward)


def folded(cluster: Cluster, fold: Fold, machine: Machine | None) -> Cluster:
    """Return a cluster with a board for each stage of a chain whose devices have several stages
    each.

    Of a board's memory, its stages have equal shares; of all else, too, where engines work at the
    same time. A link closes a loop to a ring, as those of a ring and a torus do; in a V,
    neighbouring stages may be on one board.

    Raises:
        InputError: the boards are on a switch.
    """
    chunks = fold.chunks
    if chunks == 1:
        return cluster
    if cluster.topology.has_ports:
        raise InputError(
            f"`links.topology` = {cluster.topology.name!r}: the shares of a port are not modelled"
            f" for boards with {chunks} stages each; should be 'chain', 'ring' or 'torus'"
        )
    apart = machine is None or machine.engines is Engines.SPLIT
    boards = tuple(
        cluster.board(fold.device(stage)).share(chunks, whole=not apart)
        for stage in range(fold.count)
    )
    links = [_link_between(cluster, fold.link(stage)) for stage in range(fold.count - 1)]
    if apart:
        links = [
            dataclasses.replace(link, bandwidth_mbps=max(1, link.bandwidth_mbps // chunks))
            for link in links
        ]
    return dataclasses.replace(cluster, boards=boards, own_links=tuple(links))


def _link_between(cluster: Cluster, left: int | None) -> Link:
    """Return the link behind a board; None: between two stages of one board."""
    if left is not None:
        return cluster.link_at(left)
    return OnBoard(cluster.link.bandwidth_mbps, 0, cluster.link.share)


def chunks_of(config: Config, devices: int) -> int:
    """Return the number of stages of a device; one device alone has one.

    Raises:
        InputError: the schedule has one stage on each device.
    """
    chunks = asked_chunks(config)
    return 1 if devices == 1 and config.schedule.file is None else chunks


def asked_chunks(config: Config) -> int:
    """Return the number of stages of a device that a configuration asks for, or its schedule has.

    Raises:
        InputError: the schedule has one stage on each device.
    """
    kind = config.schedule
    if kind.file is not None and config.chunks not in (None, kind.chunks):
        raise InputError(
            f"`chunks` = {config.chunks}: schedule {kind.name} has {plural(kind.chunks, 'stage')}"
            " on each device"
        )
    if config.chunks is not None and config.chunks > 1 and kind.chunks == 1:
        raise InputError(
            f"`chunks` = {config.chunks}: schedule {kind.name} has one stage on each device; try"
            " schedule interleaved"
        )
    return config.chunks or kind.chunks


def check_chunks(config: Config, network: Network, devices: int, chunks: int) -> None:
    """Check that there is something for each of several stages of a device.

    Raises:
        InputError: there are more stages than layers or channels.
    """
    whole = config.stages == "layers"
    parts = len(network.layers)
    if not whole:
        parts = sum(cut_pieces(layer, config.precision) for layer in network.layers)
    if devices * chunks > parts:
        kind = "layers" if whole else "channels"
        raise InputError(
            f"`chunks` = {chunks}: {plural(devices, 'device')} with {plural(chunks, 'stage')} each"
            f" are {plural(devices * chunks, 'stage')}, and"
            f" {network.name} has {parts} {kind}; should be at most {parts // devices}"
        )


def check_topology(
    config: Config, cluster: Cluster, devices: int, data_parallel: DataParallel
) -> None:
    """Check that boards, and replicas, can be on their topologies.

    Raises:
        InputError: a shape has another number of places, an exchange needs a switch and there is
            none, or links that hold up messages are not those of a chain.
    """
    if devices > 1 or data_parallel.replicas == 1:
        cluster.laid_on(devices)
    if data_parallel.replicas > 1:
        laid = cluster.between_replicas(data_parallel.nodes, devices).topology
        if data_parallel.collective.needs_switch and not laid.has_ports:
            table = "links" if cluster.own_interconnect is None else "network"
            raise InputError(
                f"`exchange` = {data_parallel.exchange!r}: a switch forms the sum, and"
                f" `{table}.topology` = {laid.name!r}; should be {Switch.name!r}"
            )
    if config.throttle == "wall" and devices > 1 and not cluster.is_chain:
        raise InputError(
            "`throttle` = 'wall': holds up messages on the links of a chain, and `links.topology` ="
            f" {cluster.topology.name!r}; should be 'chain'"
        )


def warm_ups_of(config: Config, devices: int, micro_batches: int) -> tuple[int, ...]:
    """Return the warm-up forwards of each device that a configuration gives; () for the schedule's
    own.

    Raises:
        InputError: the schedule has a fixed order, or the expression cannot be read.
    """
    if config.warm_up is None:
        return ()
    if not config.schedule.takes_warm_ups:
        raise InputError(
            f"`warm_up` = {config.warm_up!r}: schedule {config.schedule.name} has a fixed order;"
            " kinds of 1F1B and FBP take a warm-up"
        )
    return warm_ups(config.warm_up, devices, micro_batches)


def replicate(config: Config, ranks: int) -> tuple[DataParallel, int]:
    """Return the replicas, and the number of devices in each replica's chain.

    Under a data-parallel schedule each device is a replica. Otherwise there are `replicas` parallel
    chains of `devices` devices, by default as many as a hand-made cut has, or one on each rank.

    Raises:
        InputError: the keys contradict one another, or a mini-batch cannot be divided.
    """
    schedule, codec, ratio = config.schedule, config.compress, config.compress_ratio
    exchange = schedule.replicates or config.exchange
    if ratio is not None and not codec.compresses:
        raise InputError(
            f"`compress_ratio` = {ratio:g}: has no effect without a codec; add `compress`, such as"
            " inceptionn:-10"
        )
    if schedule.replicates is None:
        of_ranks = max(1, ranks // config.replicas)
        own = schedule.order.devices if isinstance(schedule, EditedKind) else None
        if own is None and config.cut is not None:
            own = max(1, len(config.cut.boards) // asked_chunks(config))
        replicas, devices = config.replicas, config.devices or own or of_ranks
    else:
        replicas, devices = config.devices or ranks, 1
        if config.replicas not in (1, replicas):
            raise InputError(
                f"`replicas` = {config.replicas}: with schedule {schedule.name} every one of"
                f" {replicas} devices is a replica; for chains side by side use schedule sync or"
                " fpdeep"
            )
        if "exchange" in config.model_fields_set and config.exchange != exchange:
            raise InputError(
                f"`exchange` = {config.exchange!r}: schedule {schedule.name} uses {exchange!r}"
            )
    _check(config, replicas)
    feedback = config.error_feedback and codec.compresses
    parallel = DataParallel(replicas, config.groups, exchange, codec, ratio, feedback)
    _check_collective(parallel)
    return dataclasses.replace(parallel, zero=config.zero), devices


def check_samples(config: Config, replicas: int, samples: int) -> None:
    """Check that the last mini-batch of an epoch has a sample for each replica, and where all
    gather weights for each micro-batch, as many of these.

    Raises:
        InputError: it has fewer samples than there are replicas, or more micro-batches for some.
    """
    tail = samples % config.batch
    if 0 < tail < replicas:
        whole = samples - tail
        near = f"{whole} or {whole + replicas}" if whole else f"{replicas}"
        raise InputError(
            f"`samples` = {samples}: leaves {tail} for the last mini-batch, fewer than {replicas}"
            f" replicas; try {near}"
        )
    check_micro_batches(config, replicas, samples)


def _check(config: Config, replicas: int) -> None:
    if config.batch % replicas:
        below = config.batch // replicas * replicas
        near = f"{below} or {below + replicas}" if below else f"{replicas}"
        raise InputError(
            f"`batch` = {config.batch}: cannot be divided evenly among {replicas} replicas; try"
            f" {near}"
        )
    if replicas % config.groups:
        raise InputError(
            f"`groups` = {config.groups}: {replicas} replicas cannot be divided into as many equal"
            " groups"
        )
    if config.samples is not None:
        check_samples(config, replicas, config.samples)


def _check_collective(parallel: DataParallel) -> None:
    """Check that a collective other than a ring or an aggregator takes the replicas, and a
    codec.
    """
    if parallel.is_inceptionns:
        return
    collective = parallel.collective
    given = f"`exchange` = {parallel.exchange_name!r}"
    if parallel.groups > 1:
        raise InputError(
            f"{given}: `groups` = {parallel.groups} is of 'ring' and 'aggregator'; should be left"
            f" out, or `exchange` = 'rings:groups={parallel.groups}'"
        )
    try:
        phases = check_collective(collective, parallel.replicas)
    except CollectiveError as error:
        raise InputError(f"{given}: {error}") from None
    if parallel.codec.compresses and not sums_once(phases, collective.nodes(parallel.replicas)):
        raise InputError(
            f"{given}: several replicas form each sum, which what `compress` drops would make"
            " differ; leave `compress` out, or take 'ring' or 'halving-doubling'"
        )


_MOST_PRODUCT, _MOST_SUM = 2**24, 2**31
"""What kernels multiply exactly, and what a sum of 32 bits has to stay below."""


def in_precision(cluster: Cluster, precision: Precision, network: Network | None = None) -> Cluster:
    """Return a cluster whose FPGAs multiply in the classes that a run's formats need, of a network
    that is marked with these or, without one, of any without attention.

    Raises:
        InputError: multipliers of a board are too narrow.
    """
    classes = precision.multipliers if network is None else engine_classes(network, precision)

    def built(board: Board) -> Board:
        if not isinstance(board, Fpga):
            return board
        return board.in_classes(classes, cluster.alpha, precision.dot)

    try:
        by_id = {id(board): board for board in cluster.boards}
        by_kind = {number: built(board) for number, board in by_id.items()}
    except InputError as error:
        raise InputError(f"`precision` = {precision}: {error}") from None
    return dataclasses.replace(
        cluster, boards=tuple(by_kind[id(board)] for board in cluster.boards)
    )


def check_precision(config: Config, network: Network) -> None:
    """Check that all layers take the formats of a run.

    Raises:
        InputError: a layer does not.
    """
    if config.precision.is_single:
        return
    for layer in network.layers:
        number = config.precision.of(layer.formats).errors
        if layer.vocabulary_parallel and number.tensor_bytes:
            raise InputError(
                f"`precision` = {str(config.precision)!r}: {layer.name} has"
                " `vocabulary_parallel` = true, so each board makes errors of its own logits, and"
                f" {number.name} has a scale of all logits of a row; should be errors in another"
                " format, such as 'mxfp4'"
            )
    for head in network.heads:
        _check_tied(config.precision, head)
    for layer in network.layers:
        _check_layer(config, layer)


def _check_layer(config: Config, layer: Layer) -> None:
    """Check that a layer takes its formats.

    Raises:
        InputError: it does not.
    """
    precision = config.precision
    own, given = precision.of(layer.formats), f"`precision` = {str(precision)!r}"
    # What it multiplies; states and shares, which it makes, are in its own formats.
    operands = own.reading(precision.of(layer.reads.formats))
    if own.accumulate == "int32":
        _check_integers(config.batch, operands, layer, given)
        if layer.operation.recurs and own.activations != operands.activations:
            raise InputError(
                f"{given}: {layer.name} adds products of inputs and of states, and accumulate ="
                f" 'int32' has one point for both; should be activations in {own.activations.name}"
                " where its inputs are made, too"
            )
        if layer.operation.recurs and any(one.history for one in (own, operands)):
            raise InputError(
                f"{given}: {layer.name} adds products of inputs and of states, which have scales of"
                " their own, and accumulate = 'int32' has one point for both; should be without"
                " `scaling`, or with accumulate = 'dot:32'"
            )
        if not layer.has_weights:  # shares are in its own format
            _check_integers(config.batch, own, layer, given)
    if own.dot or own.hadamard or own.history or own.square:
        _check_dots(operands, layer, given)
    if own.dot and not layer.has_weights:
        _check_exact(own, operands, layer, given)


def _check_tied(precision: Precision, head: Layer) -> None:
    """Check that both ends of a table have its formats.

    Raises:
        InputError: it is otherwise.
    """
    own, given = precision.of(head.formats), f"`precision` = {str(precision)!r}"
    assert head.tied is not None
    others = precision.of(head.tied.formats)
    if own.weight_block > 1 and (own.dot > 0) != (others.dot > 0):
        raise InputError(
            f"{given}: {head.name} has the weights of {head.operation.tied}, in blocks of what"
            f" {head.name} sums, or of symbols; should be the same `accumulate` for both"
        )
    if own.scales_weights and own.history != others.history:
        raise InputError(
            f"{given}: {head.name} has the weights of {head.operation.tied}, which are one table"
            " with one scale; should be the same `scaling` for both"
        )
    for kind in OF_WEIGHTS:
        forms = [(one.format(kind), one.rounding_of(kind)) for one in (own, others)]
        if forms[0] != forms[1]:
            raise InputError(
                f"{given}: {head.name} has the weights of {head.operation.tied}, which are one table"
                f" with one format of {kind}; should be the same for both"
            )


def _check_dots(operands: Precision, layer: Layer, given: str) -> None:
    """Check that products of a layer can be summed in blocks, and its maps be scaled.

    Raises:
        InputError: they cannot.
    """
    if not layer.operation.looks_up:
        try:
            check_dots(operands)
        except ValueError as error:
            raise InputError(f"{given}: {layer.name}: {error}") from None


def _check_exact(own: Precision, operands: Precision, layer: Layer, given: str) -> None:
    """Check that blocks of attention's products, of inputs and of its own shares, are exact.

    Raises:
        InputError: they are not.
    """
    pairs = (
        ("activations", operands.activations, "activations", operands.activations),
        ("probabilities", own.activations, "activations", operands.activations),
        ("probabilities", own.activations, "errors", own.errors),
    )
    for one, number, other, second in pairs:
        bits = sum_bits(number, second, own.dot)
        if bits > WIDE_BITS:
            raise InputError(
                f"{given}: accumulate = {own.accumulate!r}: {layer.name} is {_kind_of(layer)}, and an"
                f" exact sum of {own.dot} products of {one} in {number.name} and {other} in"
                f" {second.name} takes {bits} bits, for which there is no adder of {WIDE_BITS};"
                " should be formats of less range, such as 'mxint8'"
            )


def check_loss_scale(config: Config, parallel: DataParallel, faults: Faults) -> None:
    """Check that a loss scale which follows overflows can see them.

    Raises:
        InputError: it cannot.
    """
    precision, kind = config.precision, config.schedule
    if not precision.grows_every:
        return
    given, usual = f"`precision` = {str(precision)!r}: the loss scale", "should be a number"
    if not kind.drains:
        raise InputError(
            f"{given} follows the gradients of all devices, and `schedule` = {kind.name!r} waits"
            " for none; should be a schedule that drains, such as 'sync', or a number"
        )
    kinds = itertools.product(precision.all_of, ("errors", "gradients"))
    for number, name in ((own.format(name), name) for own, name in kinds):
        grid = number.grid
        is_cut_off = isinstance(grid, BlockGrid) or (grid is not None and not grid.overflows)
        if is_cut_off and (name == "errors" or parallel.replicas > 1):
            raise InputError(
                f"{given} halves where {name} overflow, and those in {number.name} saturate;"
                f" {usual}, or {name} in fp16 or bf16"
            )
    if faults.deaths:
        raise InputError(
            f"{given} is of boards that live on, and `faults.deaths` has one die; {usual}"
        )
    if parallel.codec.compresses:
        raise InputError(
            f"{given} halves where a gradient is infinite, which `compress` ="
            f" {str(parallel.codec)!r} may drop; {usual}, or no `compress`"
        )


def _kind_of(layer: Layer) -> str:
    return "vocabulary-parallel" if layer.vocabulary_parallel else layer.operation.type


def _check_integers(batch: int, operands: Precision, layer: Layer, given: str) -> None:
    """Check that whole numbers of 32 bits hold all sums of a layer's products, in mini-batches of
    `batch`.

    Raises:
        InputError: a format is not fixed point, or a sum may be larger, or errors of a map have
            several parts.
    """
    largest: dict[str, int] = {}
    for kind in ("activations", "weights", "errors"):
        grid = operands.format(kind).grid
        if not isinstance(grid, FloatGrid) or not grid.is_fixed_point:
            raise InputError(
                f"{given}: accumulate = 'int32' sums fixed point, such as 'int8' or 'q2.10';"
                f" {kind} are in {operands.format(kind).name}"
            )
        largest[kind] = round(grid.largest / grid.spacing)
    if layer.needs_errors and layer.reads.number not in layer.read_once:
        raise InputError(
            f"{given}: other layers read the inputs of {layer.name}, too, whose errors add up over"
            " layers, in fp32; should be without accumulate = 'int32'"
        )
    operation = layer.operation
    if isinstance(operation, Attention):
        if operation.sharing > 1:
            raise InputError(
                f"{given}: heads of {layer.name} share keys and values, whose errors add up over"
                " heads, in fp32; should be without accumulate = 'int32'"
            )
        depth = max(operation.size(layer.input), layer.input[1])
        depths = {
            "FP": (depth, "activations", "activations"),
            "EB": (depth, "activations", "errors"),
        }
    elif isinstance(operation, Recurrent):
        back = operation.directions * operation.gates * operation.units
        depths = {
            "FP": (layer.input[0] + operation.hidden, "activations", "weights"),
            "EB": (max(back, operation.hidden), "errors", "weights"),
            "PG": (batch * layer.input[1], "activations", "errors"),
        }
    else:
        outs, ins, *taps = layer.weight_shape
        window, groups = math.prod(taps), layer.input[0] // ins
        pixels = math.prod(layer.output[1:])
        depths = {
            "FP": (ins * window, "activations", "weights"),
            "EB": (outs // groups * window if layer.needs_errors else 0, "errors", "weights"),
            "PG": (batch * pixels, "activations", "errors"),
        }
    for phase, (depth, one, other) in depths.items():
        product = largest[one] * largest[other]
        if product > _MOST_PRODUCT or depth * product >= _MOST_SUM:
            raise InputError(
                f"{given}: {phase} of {layer.name} sums {depth:,} products of up to {product:,},"
                " which int32 cannot hold; should be at most"
                f" {(_MOST_SUM - 1) // product if product <= _MOST_PRODUCT else 0:,} products,"
                " or narrower formats"
            )
