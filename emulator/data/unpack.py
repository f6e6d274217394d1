"""Unpacking an archive of known content; anything else is refused."""

import gzip
import shutil
import zlib
from collections.abc import Collection
from pathlib import Path

from ..common import InputError

_OPTIONAL = ("readme.html",)


def unpack(archive: Path, folder: Path, members: Collection[str]) -> None:
    """Unpack the tar archive `archive`, which must hold `members` as plain files in one folder, as `folder`.

    No path, mode or link of the archive is followed: the files are written under the names in `members`. `folder`
    appears only once it is complete. Raises InputError when the archive is damaged, lacks a member or holds anything
    else.
    """
    import tarfile

    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        with tarfile.open(archive) as tar:
            for entry in tar:
                parent, _, name = entry.name.removeprefix("./").rpartition("/")
                if entry.isdir() and entry.name.removeprefix("./").rstrip("/") == folder.name:
                    continue
                content = tar.extractfile(entry) if entry.isfile() else None
                if content is None or parent != folder.name or name not in (*members, *_OPTIONAL):
                    raise InputError(f"{archive}: refused: it holds {entry.name!a}, which does not belong there")
                with content, (part / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
        missing = [member for member in members if not (part / member).exists()]
        if missing:
            raise InputError(f"{archive}: {missing[0]} is not in it; remove it and fetch again")
        part.replace(folder)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = " ".join(str(error).split())  # one line for each form of compression that was tried
        raise InputError(f"{archive}: not a whole archive ({reason}); remove it and fetch again") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
