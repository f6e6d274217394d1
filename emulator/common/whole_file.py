"""Files that are written completely or not at all, and files that grow with a run: each by one
writer at a time.

A writer fills a file of a unique name beside its target, `.NAME.XXXXXXXX.partial`, and renames it:
a reader, a full disk and a power cut leave the old content or the new one. From its start to its
end it holds the lock `.NAME.lock`: a second writer is refused at its own start. So the holder of
the lock knows that the writers of partial files beside it have ended, and it alone removes these
files.

    .run.h5.lock                  |--------- held by the writer ----------|
    .run.h5.3f9a01c2.partial         |--- filled, on the disk ---|
    run.h5                     --- what was there before --------| the new content, by one rename ---

What is added to a file that grows is on its way to the disk at once.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from .lock import Lock
from .messages import InputError, encoded

if TYPE_CHECKING:
    from typing_extensions import Self


_PARTIAL = r"\.{}\.[0-9a-f]{{8}}\.partial"
_LONGEST_NAME = 255
_SHOWN = 500
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Target:
    """A path of a file, or of one that could be there: its folder must exist. Links are followed.

    Args:
        path: the file.
        key: the setting that gave the path, which error messages name.
        example: a name for such a file, which they propose.
        value: the setting's value, where that is more than the path.

    Raises:
        InputError: `path` is a folder, device, pipe, or output of this process; or it can be no
            file's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: str = "out",
        example: str = "run.h5",
        value: str | None = None,
    ) -> None:
        self.path = pathlib.Path(path)
        self._given, self._example = (
            f"`{key}` = {_short(os.fspath(path) if value is None else value)}",
            example,
        )
        with self._telling(
            "give a path that can be written", OSError, ValueError
        ):  # the latter: no file's name
            self._absolute = (
                self.path if self.path.is_absolute() else os.path.join(current_folder(), self.path)
            )
            self._target = self._check()

    @contextlib.contextmanager
    def _telling(self, rest: str, *refusals: type[Exception]) -> Iterator[None]:
        """Turn what the system refuses into one line."""
        try:
            yield
        except refusals as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise InputError(f"{self._given}: cannot be written: {reason}; {rest}") from None

    def _check(self) -> pathlib.Path:
        """Return the file that the path leads to, after checking that it is one, or that there is
        room for one.
        """
        target = pathlib.Path(os.path.realpath(self._absolute))
        try:
            status = os.stat(
                self._absolute
            )  # not of the target: /dev/stdout leads to what has no path
        except FileNotFoundError:
            folder = target.parent
            if not folder.is_dir():
                raise InputError(
                    f"{self._given}: the folder {_short(str(folder), '')} does not exist;"
                    " create it, or give another path"
                ) from None
            return target
        except NotADirectoryError:
            raise InputError(
                f"{self._given}: a folder of this path does not exist, but is a file; give another"
                " path"
            ) from None
        if stat.S_ISDIR(status.st_mode):
            raise InputError(
                f"{self._given}: is a folder; give the name of a file, such as"
                f" {self.path / self._example}"
            )
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is not None:
            raise InputError(
                f"{self._given}: is {kind}; give the name of a file, such as {self._example}"
            )
        if any(_is_open_as(number, status) for number in (1, 2)):
            raise InputError(
                f"{self._given}: takes the output of this command already; give the name of another"
                " file"
            )
        return target


class WholeFile(Target):
    """A file that this process alone writes, from now until `close`, once or again and again, each
    time as a whole.

    A file that is there keeps its mode, and its owner where the system allows. File systems without
    locks do without the lock. Arguments are those of `Target`.

    Raises:
        InputError: as `Target`; or the file cannot be written, or has a writer.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: str = "out",
        example: str = "run.h5",
        value: str | None = None,
    ) -> None:
        super().__init__(path, key, example, value)
        with self._telling("give a path that can be written", OSError, ValueError):
            self._name = _name_beside(self._target)
            self._lock = Lock(_lock_of(self._target), self._given)
            for left in _leftovers(
                self._target
            ):  # of writers that were killed: who has the lock knows
                with contextlib.suppress(OSError):
                    os.unlink(left)

    def write(self, content: bytes | memoryview) -> None:
        """Put `content` in place of what the file holds.

        Raises:
            InputError: it cannot be written; the file holds what it held before.
        """
        with self.building() as file:
            file.write(content)

    @contextlib.contextmanager
    def building(self) -> Iterator[BinaryIO]:
        """Return a file to fill, which is put in place at the end of the `with`, when it is on the
        disk.

        Raises:
            InputError: it cannot be written; the file holds what it held before, as after any other
                exception.
        """
        with self._telling("it holds what it held before", OSError):
            before = self._check()
            if before != self._target:
                raise InputError(
                    f"{self._given}: has become another link, to {before}; let it be while it is"
                    " written"
                )
            partial = self._target.with_name(f".{self._name}.{os.urandom(4).hex()}.partial")
            try:
                with self._create(partial) as file:
                    yield file
                    file.flush()
                    # On the disk before it has the name: otherwise a power cut may leave an empty
                    # file of that name.
                    os.fsync(file.fileno())
                self._check()  # a device, or an output of this process, may have come to this path meanwhile
                os.replace(partial, self._target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
                raise
            _sync_folder(self._target.parent)

    def close(self) -> None:
        """Let others write the file; the end of the process does the same."""
        self._lock.release()

    def __fspath__(self) -> str:
        """Return the path, so that what takes a path also takes a file that is open for it
        already.
        """
        return os.fspath(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check(self) -> pathlib.Path:
        """See `Target`; a file that is there can be written."""
        target = super()._check()
        with contextlib.suppress(FileNotFoundError):
            # A rename needs only the folder's permission, and would replace a write-protected file.
            os.close(os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return target

    def _create(self, partial: pathlib.Path) -> BinaryIO:
        """Create a file with the mode and the owner of the one that it will replace."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            old = os.stat(self._target)
        except FileNotFoundError:
            return open(os.open(partial, flags, 0o666), "w+b")
        # Closed to others from the start: the old file may be private, and its mode comes below.
        file = open(os.open(partial, flags, 0o600), "w+b")  # noqa: SIM115 - the caller closes it
        with contextlib.suppress(OSError):
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
        # Without set-user and set-group bits: they were given to the old content.
        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) & 0o777)
        return file


def toml_file(path: str | os.PathLike[str], key: str, example: str) -> WholeFile:
    """Return a file for TOML that another command reads, which knows it by the end of its name.

    Raises:
        InputError: its name has another end, or as `WholeFile` says.
    """
    file = WholeFile(path, key, example)
    if os.fspath(path).lower().endswith(".toml"):
        return file
    file.close()
    raise InputError(
        f"`{key}` = {_short(os.fspath(path))}: what reads it again knows it by the end .toml; try"
        f" {_short(str(file.path.with_suffix('.toml')), '')}"
    )


def write_whole(
    path: str | os.PathLike[str], content: str | bytes, key: str = "out", example: str = "run.h5"
) -> None:
    """Write a file at once, or leave what was there; text as UTF-8. A `WholeFile` is closed.

    Raises:
        InputError: as `WholeFile` and its `write` say.
    """
    with path if isinstance(path, WholeFile) else WholeFile(path, key, example) as file:
        file.write(encoded(content) if isinstance(content, str) else content)


def current_folder() -> str:
    """Return the current folder.

    Raises:
        InputError: it has been removed.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InputError(
            "the current folder has been removed; change to one that exists, as `cd ~` does"
        ) from None


def touched(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield the files that a writer of a path touches: the file, its lock, and what killed writers
    of it left.
    """
    yield pathlib.Path(path)
    with contextlib.suppress(OSError, ValueError):
        target = pathlib.Path(os.path.realpath(path))
        yield _lock_of(target)
        yield from _leftovers(target)


def _name_beside(target: pathlib.Path) -> str:
    """Return the name after which those of the files beside a target are made."""
    name = os.fsencode(target.name)
    if len(name) <= _LONGEST_NAME - len("..XXXXXXXX.partial"):
        return target.name
    # With what is added, the name would be longer than file systems allow; a digest stands for it.
    import hashlib  # here, since --help does without it

    return hashlib.sha256(name).hexdigest()[:32]


def _lock_of(target: pathlib.Path) -> pathlib.Path:
    return target.with_name(f".{_name_beside(target)}.lock")


def _leftovers(target: pathlib.Path) -> list[pathlib.Path]:
    partial = re.compile(_PARTIAL.format(re.escape(_name_beside(target))))
    return [target.with_name(name) for name in os.listdir(target.parent) if partial.fullmatch(name)]


def _short(path: str, quote: str = "'") -> str:
    """Return a path as one line, without its middle where it is long."""
    text = repr(path) if quote else path
    return (
        text if len(text) <= _SHOWN else f"{text[:100]}...{text[-50:]} ({len(path):,} characters)"
    )


def _is_open_as(descriptor: int, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), status)
    except OSError:
        return False


def _sync_folder(folder: pathlib.Path) -> None:
    """Put a rename on the disk, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class LineFile(WholeFile):
    """A file that this process alone writes until `close`: `begin` it, then `add` to its end.

    It is begun as a new file, which takes the place of what was there: other links to that keep it.
    What was added stays when the run is killed, or the disk is full. All else is as for
    `WholeFile`.
    """

    _file: BinaryIO | None = None

    def begin(self, text: str) -> None:
        """Put a new file with this text in place of what is there.

        Raises:
            InputError: it cannot be written; what was there stays.
        """
        is_new = not os.path.exists(self.path)
        with self.building() as file:
            if not is_new:
                file.write(encoded(text))
                file.flush()
            # A descriptor of its own, since `building` closes the first one at its end.
            self._file = os.fdopen(os.dup(file.fileno()), "wb", buffering=0)
        if is_new:
            self.add(text)

    def add(self, text: str) -> None:
        """Add text at the end.

        Raises:
            InputError: it cannot be written; what there was room for stays.
        """
        assert self._file is not None
        with self._telling("give another path, or free some space", OSError):
            left = memoryview(encoded(text))
            while left:
                # An unbuffered write may take only the beginning, as on a disk that is nearly full.
                left = left[self._file.write(left) :]

    def close(self) -> None:
        """See `WholeFile`.

        Raises:
            InputError: what was added has no room, which some file systems tell only now.
        """
        try:
            if self._file is not None:
                with self._telling("give another path, or free some space", OSError):
                    self._file.close()
        finally:
            super().close()
