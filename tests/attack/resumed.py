"""Runs with checkpoints that are killed at random moments, resumed, and compared with runs that
were left alone.
"""

from __future__ import annotations

import collections
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from jobs import Job, environment_of, shared_by

MOST_S = 120.0
MOST_RANKS = 3
NETWORK = """
name = "tiny"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 8, kernel = 3, stride = 2, pad = 1 },
  { type = "batch-norm" },
  { type = "relu" },
  { type = "max-pool", kernel = 4 },
  { type = "conv", channels = 12, kernel = 3, pad = 1 },
  { type = "relu" },
  { type = "dropout", rate = 0.3 },
  { type = "fc", features = 16 },
  { type = "relu" },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""
COMMON = (
    "batch = 16\nsamples = 1600\ntest_samples = 20\nepochs = 4\ndevices = 3\ncheckpoint_every = 7\n"
)
VARIANTS = {
    "sync": 'schedule = "sync"\n',
    "fpdeep": 'schedule = "fpdeep"\n',
    "1f1b-so": 'schedule = "1f1b-so"\nengines = "turns"\n',
    "ring": 'schedule = "fpdeep"\nreplicas = 2\ncompress = "inceptionn:-10"\n',
    "seeds": 'schedule = "sync"\n',
}
FLAGS = {"seeds": ("--seeds", "2")}
NAMES = {"seeds": ("-seed1", "-seed2")}
"""Variants of several runs: their flags, and what the names of each run's files have in addition.
"""


class Case(NamedTuple):
    """How a run ended that was killed: ranks of each start, kills, how often it went on from a
    file, what is wrong.
    """

    ranks: list[int]
    kills: int
    resumes: int
    wrong: list[str]


class Attack:
    """Kills one variant's runs under one MPI."""

    def __init__(self, variant: str, mpi: str, seed: int, first_s: float, folder: Path) -> None:
        self._environment, self._first_s, self._folder = environment_of(mpi), first_s, folder
        self._flags, self._names = FLAGS.get(variant, ()), NAMES.get(variant, ("",))
        self._chance = random.Random(f"{seed} {variant} {mpi}")
        (folder / "tiny.toml").write_text(NETWORK)
        self._settings = folder / "settings.toml"
        self._settings.write_text(
            f'network = "{folder}/tiny.toml"\nprogress = "none"\n{COMMON}{VARIANTS[variant]}'
        )
        self._expected = folder / "unbroken.h5"
        status, self._whole_s, said = self._run(
            MOST_RANKS, ["train", self._settings, *self._flags, "--out", self._expected]
        )
        if status:
            raise SystemExit(f"{variant} under {mpi}: the unbroken run ends with {status}: {said}")

    def _run(self, ranks: int, arguments: Sequence[str | Path]) -> tuple[int, float, str]:
        """Run to the end; return the status, the seconds since the ranks were there, and what was
        said.
        """
        with tempfile.TemporaryFile("w+") as said:
            job = Job(self._environment, ranks, [str(argument) for argument in arguments], said)
            job.ranks()
            begin_s = time.monotonic()
            wrong = job.end(MOST_S, set())
            said.seek(0)
            return (
                job.process.returncode or bool(wrong),
                time.monotonic() - begin_s,
                "; ".join(wrong) + said.read(),
            )

    def _killed(self, ranks: int, arguments: Sequence[str | Path]) -> tuple[bool, list[str]]:
        """Kill a rank at a random moment; return whether it was there still, and what is wrong."""
        with tempfile.TemporaryFile("w+") as said:
            job = Job(self._environment, ranks, [str(argument) for argument in arguments], said)
            processes = job.ranks()
            time.sleep(self._chance.uniform(self._first_s, max(self._first_s, self._whole_s)))
            shared, rank = shared_by(list(processes.values())), self._chance.randrange(ranks)
            hit = job.process.poll() is None and rank in processes
            if hit:
                try:
                    processes[rank].kill()
                except psutil.NoSuchProcess:
                    hit = False
            wrong = job.end(MOST_S, set())
            for path in shared:
                Path(path).unlink(missing_ok=True)
            return hit and job.process.returncode != 0, wrong

    def case(self, most_kills: int) -> Case:
        """Kill a run once or more often, let it end, and compare its results file with that of the
        unbroken run.
        """
        out, file = self._folder / "run.h5", self._folder / "run.ckpt"
        begin = ["train", self._settings, *self._flags, "--out", out, "--checkpoint", file]
        again, first = ["train", *self._flags, "--resume", file], self._own(file)[0]
        wanted, kills, ended = self._chance.randint(1, most_kills), 0, False
        while not kills:  # a run that is over before its moment does not count
            for old in (*self._own(out), *self._own(file)):
                old.unlink(missing_ok=True)
            ranks, resumes, wrong, ended = [self._chance.randint(1, MOST_RANKS)], 0, [], False
            while kills < wanted and not ended:
                goes_on = first.exists()
                hit, left = self._killed(ranks[-1], again if goes_on else begin)
                kills, resumes, wrong, ended = kills + hit, resumes + goes_on, wrong + left, not hit
                ranks.append(
                    self._chance.choice([n for n in range(1, MOST_RANKS + 1) if n != ranks[-1]])
                )
        if ended:
            ranks.pop()
        else:
            resumes += first.exists()
            status, _, said = self._run(ranks[-1], again if first.exists() else begin)
            wrong += [f"status {status}: {said.strip()[-300:]}"] if status else []
        pairs = zip(self._own(self._expected), self._own(out), strict=True)
        return Case(
            ranks, kills, resumes, wrong or [line for pair in pairs for line in different(*pair)]
        )

    def _own(self, file: Path) -> list[Path]:
        """Return the files that the runs have of their own, made of one name."""
        return [file.with_name(f"{file.stem}{name}{file.suffix}") for name in self._names]


def different(expected: Path, actual: Path) -> list[str]:
    """Return where two results files differ: in bits of weights, or any column but the host's
    time.
    """
    from emuchain.emulator.run import read_results

    one, other = read_results(expected), read_results(actual)
    arrays = [
        {
            f"weights/{layer}/{name}": array
            for layer, parameters in results.weights.items()
            for name, array in parameters.items()
        }
        | {
            f"{table}/{name}": column
            for table in (
                "history",
                "devices",
                "links",
                "exchange",
                "messages",
                "resources",
                "steps",
            )
            for name, column in getattr(results, table).items()
            if name != "host_time_s"
        }
        for results in (one, other)
    ]
    if not one.weights or arrays[0].keys() != arrays[1].keys():
        return ["other arrays"]
    return [
        f"{name} differs"
        for name, array in arrays[0].items()
        if (array.dtype, array.shape, array.tobytes())
        != (arrays[1][name].dtype, arrays[1][name].shape, arrays[1][name].tobytes())
    ]


def attack_checkpoints(
    mpis: Sequence[str],
    variants: Sequence[str],
    count: int,
    most_kills: int,
    seed: int,
    first_s: float,
) -> Iterator[tuple[str, bool]]:
    """Yield lines to print, and whether something is wrong: one for each case, and then a table."""
    total: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0] * 5)
    for variant in variants:
        for mpi in mpis:
            with tempfile.TemporaryDirectory() as folder:
                attack = Attack(variant, mpi, seed, first_s, Path(folder))
                for place in range(count):
                    case = attack.case(most_kills)
                    row = total[variant, mpi]
                    for column, value in enumerate(
                        (1, case.kills, case.resumes, not case.resumes, not case.wrong)
                    ):
                        row[column] += value
                    verdict = "; ".join(case.wrong) or "equal"
                    ranks = ", ".join(map(str, case.ranks))
                    yield (
                        (
                            f"{variant} {mpi} {place + 1}: ranks {ranks}; kills {case.kills},"
                            f" resumed {case.resumes}: {verdict}"
                        ),
                        bool(case.wrong),
                    )
    yield "", False
    yield (
        f"{'variant':<10}{'MPI':<9}{'runs':>6}{'kills':>7}{'resumed':>9}{'restarted':>11}{'equal':>7}",
        False,
    )
    for (variant, mpi), row in total.items():
        yield f"{variant:<10}{mpi:<9}" + "".join(map("{:>{}}".format, row, (6, 7, 9, 11, 7))), False
    sums = [sum(column) for column in zip(*total.values(), strict=True)]
    yield f"{'all':<19}" + "".join(map("{:>{}}".format, sums, (6, 7, 9, 11, 7))), False
