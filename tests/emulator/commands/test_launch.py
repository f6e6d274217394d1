"""`emuchain launch`: what it starts, what it starts again, and what it refuses."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import emuchain
from emuchain.emulator.run import read_results
from emuchain.kernels.current_folder import RUN_MODULE
from emuchain.launch import LaunchError, launch, read_hosts

RUN = [sys.executable, "-m", "emuchain", "launch"]

# A launcher that leaves its arguments, and ends with the next status of a list, or as a line of
# shell says.
LAUNCHER = """#!/bin/sh
printf '%s\\n' "$*" >> {folder}/calls
n=$(wc -l < {folder}/calls)
eval "$(sed -n ${{n}}p {folder}/ends)"
"""

# It has no ranks to wait for before it gets a signal.
MAIN = """
import sys
sys.executable = sys.argv.pop(1)
from emuchain.emulator.commands import launch
from emuchain.emulator.commands.cli import main
launch._PATIENCE_S = 0.0
main()
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with a launcher of its own beside it, which `ends` tells what to do."""
    there = tmp_path / "bin"
    there.mkdir()
    launcher = there / "mpiexec"
    launcher.write_text(LAUNCHER.format(folder=tmp_path))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "main.py").write_text(MAIN)
    return there / "python"


def run(
    python: Path, ends: list[str], *arguments: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the command with this launcher; return how it ended, and the launcher's arguments."""
    folder = python.parent.parent
    (folder / "ends").write_text("".join(f"{end}\n" for end in ends))
    command = [sys.executable, folder / "main.py", python, "launch", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    calls = folder / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_ranks_are_started_with_all_arguments(python: Path) -> None:
    done, calls = run(
        python, ["echo out; exit 0"], "-n", "3", "--", "train", "vgg11-cifar", "--batch", "8"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")
    assert calls == [
        " ".join(["-n 3", str(python), *RUN_MODULE, "emuchain train vgg11-cifar --batch 8"])
    ]


def test_a_run_is_started_again_and_goes_on_from_its_checkpoint(python: Path) -> None:
    ends = ["exit 9", "touch now.ckpt; exit 137", "exit 0"]
    done, calls = run(
        python, ends, "-n", "2", "--restarts", "3", "--", "train", "--checkpoint", "now.ckpt"
    )
    assert done.returncode == 0
    assert [call.partition("train ")[2] for call in calls] == [
        "--checkpoint now.ckpt",
        "--checkpoint now.ckpt",
        "--checkpoint now.ckpt --resume now.ckpt",
    ]
    assert done.stderr.splitlines() == [
        "emuchain: status 9; restart 1 of 3, from the beginning",
        "emuchain: status 137; restart 2 of 3, from now.ckpt",
    ]


@pytest.mark.parametrize(
    ("installed", "flags"),
    [
        ("mpich", "-f {}"),
        ("openmpi", "--hostfile {} --map-by slot -x OMP_NUM_THREADS -x NUMBA_NUM_THREADS"),
    ],
)
def test_ranks_on_the_hosts_of_a_file(
    python: Path, tmp_path: Path, installed: str, flags: str
) -> None:
    """A launcher gets the file each time, after which it is no business of this process."""
    main = python.parent.parent / "main.py"
    expected_text = (
        "from emuchain.launch import launch\nlaunch.is_installed = lambda name: name =="
        f" {installed!r}\n"
    )
    main.write_text(main.read_text().replace("main()\n", f"{expected_text}main()\n"))
    hosts = tmp_path / "hosts"
    counted = ":" if installed == "mpich" else " slots="
    hosts.write_text(f"# two hosts\nlocalhost{counted}2\n127.0.0.1{counted}2\n")
    done, calls = run(
        python,
        ["exit 9", "exit 0"],
        "-n",
        "4",
        "--hosts",
        str(hosts),
        "--restarts",
        "1",
        "--",
        "train",
    )
    assert done.returncode == 0, done.stderr
    assert [call.startswith(f"-n 4 {flags.format(hosts)} ") for call in calls] == [True, True]


HOSTS = {
    None: "cannot be read",
    "": "names no host",
    "# none\n\n": "names no host",
    "localhost:0\n": "line 1: '0' is no number of ranks",
    "localhost:2\nlocalhost:-1": "line 2: '-1' is no number of ranks",
    "localhost:2:3": "line 1: '2:3' is no number of ranks",
    "localhost:": "line 1: '' is no number of ranks",
    "-oProxyCommand=touch x\n": "line 1: '-oProxyCommand=touch' does not begin with a host's name",
    ":2": "line 1: ':2' does not begin with a host's name",
    "localhost:2\n\nnone.invalid:2": "line 3: the host 'none.invalid' is unknown here",
    "[localhost]\nnodes = 2": "line 1: '[localhost]' does not begin with a host's name",
}


@pytest.mark.parametrize(("content", "message"), HOSTS.items())
def test_a_file_without_hosts(
    python: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    hosts = tmp_path / "hosts"
    if content is not None:
        hosts.write_text(content)
    done, calls = run(python, [], "-n", "4", "--hosts", str(hosts), "--", "train")
    assert (done.returncode, calls, len(done.stderr.splitlines())) == (2, [], 1)
    assert f"`hosts` = {str(hosts)!r}: {message}" in done.stderr


def test_a_host_file_for_the_other_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "is_installed", lambda name: name == "openmpi")
    with pytest.raises(LaunchError, match="line 1: 'node1:4': Open MPI takes `node1 slots=4`"):
        read_hosts("node1:4")


OUTPUTS = [
    "--out NAME",
    "--checkpoint NAME",
    "--log csv:NAME",
    "--trace NAME",
    "--out LINK",
    "--out ./NAME",
]
OUTPUTS += ["--seeds 2 --out SEEDS", "--control --compress bf16 --checkpoint CONTROL"]


@pytest.mark.parametrize("flags", OUTPUTS)
def test_what_it_starts_does_not_write_its_host_file(python: Path, flags: str) -> None:
    """Names are compared after they are expanded: a run of seeds writes `hosts-seed1`."""
    folder = python.parent.parent
    written = {"SEEDS": "hosts-seed1", "CONTROL": "hosts-control"}
    hosts = folder / next((name for key, name in written.items() if key in flags), "hosts")
    hosts.write_text("localhost:2\n")
    (folder / "link").symlink_to(hosts)
    words = {"NAME": "hosts", "SEEDS": "hosts", "CONTROL": "hosts", "LINK": "link"}
    for key, word in words.items():
        flags = flags.replace(key, word)
    done, calls = run(python, [], "-n", "1", "--hosts", hosts.name, "--", "train", *flags.split())
    assert (done.returncode, calls, len(done.stderr.splitlines())) == (2, [], 1)
    assert "is a host file, which `hosts` = " in done.stderr
    assert hosts.read_text() == "localhost:2\n"


def test_a_checkpoint_of_an_earlier_run_is_not_this_ones(python: Path) -> None:
    (python.parent.parent / "now.ckpt").touch()
    done, calls = run(
        python, ["exit 9"], "-n", "2", "--restarts", "1", "--", "train", "--checkpoint", "now.ckpt"
    )
    assert (done.returncode, len(calls), "--resume" in calls[1]) == (0, 2, False)
    assert "from the beginning" in done.stderr


ENDED = {
    "train --seeds 2 --checkpoint now.ckpt": (
        "now-seed1.ckpt",
        "train --seeds 2 --checkpoint now.ckpt --resume now.ckpt",
    ),
    "train --control --compress bf16 --checkpoint=now.ckpt": (
        "now.ckpt",
        "train --control --compress bf16 --checkpoint=now.ckpt --resume now.ckpt",
    ),
    "train run.toml": ("of-file.ckpt", "train run.toml --resume of-file.ckpt"),
    "sweep vgg11-cifar --devices 1-4 --csv rows.csv --restart": (
        "rows.csv",
        "sweep vgg11-cifar --devices 1-4 --csv rows.csv",
    ),
    "sweep vgg11-cifar --devices 1-4": ("rows.csv", "sweep vgg11-cifar --devices 1-4"),
    "precision --formats q2.6,fp32 --checkpoint now.ckpt": (
        "now-q2.6.ckpt",
        "precision --formats q2.6,fp32 --checkpoint now.ckpt --resume now.ckpt",
    ),
    "precision run.toml": ("of-file-fp32.ckpt", "precision run.toml --resume of-file.ckpt"),
    "precision --formats bf16": ("now-bf16.ckpt", "precision --formats bf16"),
    "study compare vgg16 --plot a.png": ("a.png", "study compare vgg16 --plot a.png"),
    "study topology vgg16": ("a.png", "study topology vgg16"),
    "study exchange vgg16": ("a.png", "study exchange vgg16"),
    "explore vgg16 --cluster vc709": ("a.png", "explore vgg16 --cluster vc709"),
}
"""Commands that train or time several times: the file that the first start writes, and how the next
one is started.
"""


@pytest.mark.parametrize("words", ENDED)
def test_how_each_command_goes_on(python: Path, words: str) -> None:
    (python.parent.parent / "run.toml").write_text('checkpoint = "of-file.ckpt"\n')
    file, again = ENDED[words]
    ranks = "2" if words.startswith(("train", "sweep")) else "1"
    done, calls = run(
        python,
        [f"touch {file}; exit 9", "exit 0"],
        "-n",
        ranks,
        "--restarts",
        "1",
        "--",
        *words.split(),
    )
    assert done.returncode == 0, done.stderr
    assert [call.partition("emuchain ")[2] for call in calls] == [words, again]
    where = "from the beginning" if again == words and "--csv" not in words else f"from {file}"
    assert done.stderr == f"emuchain: status 9; restart 1 of 1, {where}\n"


@pytest.mark.parametrize(
    "words", [words for words in ENDED if not words.startswith(("train", "sweep"))]
)
def test_one_process_has_no_ranks(python: Path, words: str) -> None:
    (python.parent.parent / "run.toml").touch()
    done, calls = run(python, [], "-n", "2", "--", *words.split())
    assert (done.returncode, calls, len(done.stderr.splitlines())) == (2, [], 1)
    assert (
        "has no ranks; write `emuchain " in done.stderr
        and "`-n 1` starts it as one process" in done.stderr
    )


def test_a_launcher_that_cannot_start_its_ranks_is_killed(python: Path) -> None:
    """With the ranks that it has started."""
    folder = python.parent.parent
    (folder / "ends").write_text(
        "trap '' USR1; sleep 300 & touch ready; while :; do sleep 0.05; done\n"
    )
    main = folder / "main.py"
    main.write_text(main.read_text().replace("main()\n", "launch._MOST_S = 1.0\nmain()\n"))
    command = [sys.executable, main, python, "launch", "-n", "2", "--", "train"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "ready").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)  # ends once no descendant has the pipe
    assert (process.returncode, said) == (128 + signal.SIGTERM, "")


def test_the_last_status_counts(python: Path) -> None:
    done, calls = run(
        python, ["exit 9", "exit 3"], "-n", "2", "--restarts", "1", "--", "train", "--checkpoint=a"
    )
    assert (done.returncode, len(calls)) == (3, 2)


@pytest.mark.parametrize("restarts", ["0", "5"])
def test_what_the_user_can_mend_is_not_tried_again(python: Path, restarts: str) -> None:
    done, calls = run(python, ["exit 2"], "-n", "2", "--restarts", restarts, "--", "train")
    assert (done.returncode, len(calls), done.stderr) == (2, 1, "")


@pytest.mark.parametrize(
    ("number", "passed_on"), [("INT", "INT"), ("TERM", "USR1"), ("USR1", "USR1"), ("HUP", "USR1")]
)
def test_signals_are_passed_on_and_end_the_run(python: Path, number: str, passed_on: str) -> None:
    folder = python.parent.parent
    caught = f"trap 'touch caught; exit 1' {passed_on}; touch ready; while :; do sleep 0.05; done"
    (folder / "ends").write_text(f"{caught}\n")
    command = [
        sys.executable,
        folder / "main.py",
        python,
        "launch",
        "-n",
        "2",
        "--restarts",
        "4",
        "--",
        "train",
    ]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "ready").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(getattr(signal, f"SIG{number}"))
        _, said = process.communicate(timeout=60)
    assert (folder / "caught").exists()
    assert process.returncode == 128 + getattr(signal, f"SIG{number}")
    assert said == ""


EARLY = """
import os, signal, subprocess, sys
start = subprocess.Popen

def signalled(*words, **how):
    process = start(*words, **how)
    while not os.path.exists("ready"):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    return process

subprocess.Popen = signalled
"""


def test_a_signal_while_ranks_start_is_passed_on(python: Path) -> None:
    """It came before the new process was known."""
    folder = python.parent.parent
    (folder / "ends").write_text(
        "trap 'touch caught; exit 1' USR1; touch ready; while :; do sleep 0.05; done\n"
    )
    main = folder / "main.py"
    main.write_text(EARLY + main.read_text())
    command = [sys.executable, main, python, "launch", "-n", "2", "--", "train"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (folder / "caught").exists()
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0", "--", "train"], "0 is not in the range x>=1"),
        (["--", "train"], "Missing option '-n'"),
        (["-n", "2", "--restarts", "-1", "--", "train"], "-1 is not in the range x>=0"),
        (
            ["-n", "2", "--", "plan"],
            "`plan` has no ranks; write `emuchain plan …`, or `emuchain launch -n 4 -- train …`",
        ),
        (["-n", "2"], "should be `emuchain launch -n 4 -- train …`"),
        (["-n", "2", "--", "train", "--seeds", "0,1,2"], "`--seed 0 --seeds 3`"),
        (["-n", "100000", "--", "train"], "one takes at most 1,023"),
    ],
)
def test_what_is_refused(one_line, arguments: list[str], message: str) -> None:
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in one_line(done.stderr)


def test_without_mpiexec(one_line, python: Path) -> None:
    (python.parent / "mpiexec").unlink()
    command = [
        sys.executable,
        python.parent.parent / "main.py",
        python,
        "launch",
        "-n",
        "2",
        "--",
        "train",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": ""}
    )
    assert done.returncode == 2
    assert "no `mpiexec`" in one_line(done.stderr)


def test_within_ranks_it_is_refused(mpiexec, one_line) -> None:
    done = mpiexec(2, ["-m", "emuchain", "launch", "-n", "2", "--", "train"], status=2)
    assert "start it without a launcher" in one_line(done.stderr)


def test_ranks_train(mpiexec, tmp_path: Path) -> None:
    command = [mpiexec.python, "-m", "emuchain", "launch", "-n", "2", "--", "train"]
    small = ["--samples", "32", "--test-samples", "4", "--batch", "16", "--out", "run.h5"]
    done = subprocess.run(
        [*command, *small], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "in 2 ranks" in done.stdout + done.stderr
    assert (tmp_path / "run.h5").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "said"), [("INT", "interrupted"), ("TERM", "ended by SIGUSR1")])
def test_ranks_that_train_end_with_the_documented_status(  # type: ignore[no-untyped-def]
    mpiexec, one_line, tmp_path: Path, number: str, said: str
) -> None:
    """Whatever the launcher makes of it: Open MPI's own status is 1, and its SIGINT kills ranks."""
    command = [
        mpiexec.python,
        "-m",
        "emuchain",
        "launch",
        "-n",
        "2",
        "--",
        "train",
        "--log",
        "csv:steps.csv",
    ]
    long = ["--samples", "640", "--test-samples", "4", "--epochs", "500", "--progress", "none"]
    with subprocess.Popen(
        [*command, *long],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        log = tmp_path / "steps.csv"
        while process.poll() is None and not (log.exists() and log.read_text().count("\n") > 2):
            time.sleep(0.05)
        process.send_signal(getattr(signal, f"SIG{number}"))
        _, expected_text = process.communicate(timeout=100)
    assert one_line(expected_text) == f"emuchain: {said}"
    assert process.returncode == 128 + getattr(signal, f"SIG{number}")


DIES = """
import os, pathlib, signal
died = pathlib.Path({died!r})
if "1" in (os.environ.get("PMI_RANK"), os.environ.get("PMIX_RANK")) and not died.exists():
    from emuchain.emulator.run.state.checkpoints import RunCheckpoints
    reach = RunCheckpoints.reach
    def reach_or_die(self, trainer, position, *ends):
        if position == (2, 0):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return reach(self, trainer, position, *ends)
    RunCheckpoints.reach = reach_or_die
"""


def flags_of(settings: dict[str, int]) -> list[str]:
    """Return the flags of a run's settings."""
    return [
        word
        for key, value in settings.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]


def with_restarts(
    mpiexec, folder: Path, ranks: int, restarts: int, words: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, whose `sitecustomize.py` ends ranks, until it has ended well."""
    launch_words = ["launch", "-n", str(ranks), "--restarts", str(restarts), "--", *words]
    folders = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, folders))}
    done = subprocess.run(
        [mpiexec.python, "-m", "emuchain", *launch_words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_rank_dies_and_the_run_ends_as_if_it_had_not(mpiexec, tmp_path: Path, bits) -> None:
    """Rank 1 kills itself, the first time, where it should write the checkpoint after the second
    epoch.
    """
    (tmp_path / "sitecustomize.py").write_text(DIES.format(died=str(tmp_path / "died")))
    settings = {
        "samples": 96,
        "test_samples": 4,
        "batch": 16,
        "epochs": 4,
        "devices": 3,
        "checkpoint_every": 2,
    }
    train = ["train", *flags_of(settings), "--checkpoint", "run.ckpt", "--out", "run.h5"]
    done = with_restarts(mpiexec, tmp_path, 2, 2, train)
    assert (tmp_path / "died").exists()
    assert "restart 1 of 2, from run.ckpt" in done.stderr
    assert "restart 2" not in done.stderr
    assert "resuming from run.ckpt" in done.stdout + done.stderr
    found, expected = read_results(tmp_path / "run.h5"), emuchain.train(**settings)
    assert bits(found.weights) == bits(expected.weights)
    for name in expected.history.keys() - {"host_time_s"}:
        assert (found.history[name] == expected.history[name]).all(), name
    assert found.usage == expected.usage


SMALL = {
    "samples": 56,
    "test_samples": 4,
    "batch": 8,
    "epochs": 2,
    "devices": 2,
    "checkpoint_every": 1,
}
DIES_AGAIN = """
import os, pathlib, signal
deaths = pathlib.Path({folder!r})
if "1" in (os.environ.get("PMI_RANK"), os.environ.get("PMIX_RANK")) and len(os.listdir(deaths)) < 3:
    from emuchain.emulator.run.state.checkpoints import RunCheckpoints
    reach, reached = RunCheckpoints.reach, []
    def reach_and_die(self, trainer, position, *ended):
        ends = reach(self, trainer, position, *ended)
        reached.append(position)
        if len(reached) == 8:
            (deaths / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ends
    RunCheckpoints.reach = reach_and_die
"""


def test_runs_in_formats_go_on_after_each_of_three_deaths(mpiexec, tmp_path: Path) -> None:
    """The last table is that of runs that nothing has ended."""
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    (tmp_path / "sitecustomize.py").write_text(
        DIES_AGAIN.format(folder=str(deaths)).replace('"1" in', '"0" in')
    )
    words = ["precision", *flags_of(SMALL), "--formats", "fp32,bf16", "--json"]
    done = with_restarts(mpiexec, tmp_path, 1, 3, [*words, "--checkpoint", "run.ckpt"])
    assert len(list(deaths.iterdir())) == 3
    assert [
        f"restart {number} of 3, from run-fp32.ckpt" in done.stderr for number in (1, 2, 3)
    ] == [True] * 3
    whole = subprocess.run(
        [mpiexec.python, "-m", "emuchain", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.endswith(whole.stdout) and whole.stdout.startswith("{")


def test_runs_of_seeds_go_on_after_each_of_three_deaths(mpiexec, tmp_path: Path, bits) -> None:
    """From seed, epoch and step: each process makes 8 of 28 mini-batches."""
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    (tmp_path / "sitecustomize.py").write_text(DIES_AGAIN.format(folder=str(deaths)))
    train = [
        "train",
        *flags_of(SMALL),
        "--seeds",
        "2",
        "--checkpoint",
        "run.ckpt",
        "--out",
        "run.h5",
    ]
    done = with_restarts(mpiexec, tmp_path, 2, 3, train)
    assert len(list(deaths.iterdir())) == 3
    assert [
        f"restart {number} of 3, from run-seed1.ckpt" in done.stderr for number in (1, 2, 3)
    ] == [True] * 3
    for seed in (1, 2):
        found, expected = (
            read_results(tmp_path / f"run-seed{seed}.h5"),
            emuchain.train(**SMALL, seed=seed),
        )
        assert bits(found.weights) == bits(expected.weights)
        for name in expected.history.keys() - {"host_time_s"}:
            assert (found.history[name] == expected.history[name]).all(), name
