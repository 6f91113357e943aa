"""Find what each student handed in: a folder or a notebook each, or what Canvas and Moodle let an instructor download.

Canvas names a file ``NAME[_LATE]_USER_ATTACHMENT_FILE`` (``anon_ID`` for user in an anonymous assignment), NAME being
the sortable name in lower case without blanks; a second upload of ``hw.ipynb`` is called ``hw-1.ipynb``
(``lib/content_zipper.rb`` of canvas-lms). Moodle makes a folder ``NAME_PARTICIPANT_assignsubmission_file_`` for each
student, or begins the file's name so (``mod/assign/locallib.php`` of moodle). Archives may hold archives. Nothing of an
archive but notebooks is written to the disk, under names of our own; what is unsafe in it costs its own student alone.
"""

import atexit
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp

from distgen_lab.grading.gradebook import GradingError
from distgen_lab.grading.submission import MAX_BYTES, Submission, UnreadableSubmission

__all__ = ["Chosen", "HandIn", "HandedFile", "choose", "collect", "find_submissions"]

MAX_ARCHIVE = 100_000_000
"""Largest archive inside another one, in bytes."""
MAX_MEMBERS = 20_000
"""Most entries of an archive."""
MAX_DEPTH = 3
"""Deepest nesting of archives: the class, a student's, one inside it."""

_CANVAS = re.compile(r"(?i)^(?P<name>\w*?)_?(?:(?P<late>LATE)_)?(?P<id>\d+|anon_[^\W_]+)_(?P<upload>\d+)_(?P<file>.+)$")
_MOODLE = re.compile(r"^(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?P<kind>file|onlinetext)(?:_(?P<file>.*))?$")
_ATTEMPT = re.compile(r"(?i)^(?:attempt|versuch|submission|try|v)[ _-]?(\d+)$")
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d)[T _](\d\d)[:-]?(\d\d)(?:[:-]?(\d\d))?(?:\.\d+)? ?(Z|UTC|[+-]\d\d:?\d\d)?")
_IGNORED = {"__MACOSX", ".ipynb_checkpoints"}


@dataclass(frozen=True)
class HandedFile:
    """One notebook a student handed in: where it lies, which attempt it belongs to, and when it was handed in.

    ``order`` sorts the attempts of one student. ``when`` is aware, or None where nothing says it. ``late`` is the mark
    that Canvas puts into the name. ``stamped`` says that the time is the name of the attempt's folder, not the file's.
    """

    path: Path
    attempt: str = ""
    order: tuple = ()
    when: datetime | None = None
    late: bool = False
    stamped: bool = False


@dataclass
class HandIn:
    """What one student handed in. ``refused`` says why something of it was not read, "" if all was."""

    student: str
    name: str = ""
    lms: str = ""
    lms_id: str = ""
    files: list[HandedFile] = field(default_factory=list)
    refused: str = ""


@dataclass(frozen=True)
class _Entry:
    """A file as found: path inside the collection, place on the disk or None, time, and what is wrong with it."""

    parts: tuple[str, ...]
    path: Path | None = None
    when: datetime | None = None
    problem: str = ""


def find_submissions(folder: Path) -> dict[str, list[Path]]:
    """Return the notebooks of each student in a folder with a folder or a notebook per student.

    Raises:
        GradingError: if the folder is missing or holds neither.
    """
    return {student: [file.path for file in hand_in.files] for student, hand_in in collect(folder).items()}


def collect(source: Path, work: Path | None = None) -> dict[str, HandIn]:
    """Return what each student handed in, by student, in order of their names.

    Args:
        source: a folder or a zip archive in any of the layouts above.
        work: an existing folder for notebooks that come out of archives; None makes one that goes when Python ends.

    Raises:
        GradingError: if the source is missing, is no archive, or holds no notebook and no student's folder.
    """
    entries = list(_entries(source, work))
    found: dict[str, HandIn] = {}
    for folder in sorted(source.iterdir()) if source.is_dir() else []:
        if folder.is_dir() and not folder.is_symlink() and not _ignored((folder.name,)):
            owner = _owner((folder.name, ""))
            found.setdefault(owner.student, owner)
    for entry in entries:
        owner = _owner(entry.parts)
        hand_in = found.setdefault(owner.student, owner)
        hand_in.name = hand_in.name or owner.name
        _add(hand_in, entry)
    if not found:
        raise GradingError(f"{source}: holds no student folders and no notebooks")
    return dict(sorted(found.items()))


def _entries(source: Path, work: Path | None) -> Iterator[_Entry]:
    """Every notebook in the source, archives unpacked, and every file that cannot be taken."""
    where = "a folder or archive with one folder or one notebook per student"
    if not source.exists():
        raise GradingError(f"{source} does not exist; name {where}")
    if source.is_file() and not zipfile.is_zipfile(source):
        raise GradingError(f"{source} is a file and no zip archive; name {where}")
    room = _Room(work)
    source = _only_archive(source) or source
    if source.is_file():
        entries = list(_unpack(source, (), room, 1))
        wrapped = _wrapper(source.stem, entries)
        yield from (_Entry(e.parts[wrapped:], e.path, e.when, e.problem) for e in entries)
        return
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if not _ignored(parts) and (path.is_symlink() or not path.is_dir()):
            yield from _on_disk(path, parts, room)


def _only_archive(folder: Path) -> Path | None:
    """The download of an LMS that lies alone in the folder, still packed."""
    there = [path for path in folder.iterdir() if not _ignored((path.name,))] if folder.is_dir() else []
    if len(there) != 1 or there[0].is_symlink() or not zipfile.is_zipfile(there[0]):
        return None
    try:
        with zipfile.ZipFile(there[0]) as archive:
            tops = {name.split("/")[0] for name in archive.namelist()[:MAX_MEMBERS]}
    except _BROKEN:
        return None
    return there[0] if any(_MOODLE.match(top) or _CANVAS.match(top) for top in tops) else None


def _on_disk(path: Path, parts: tuple[str, ...], room: "_Room") -> Iterator[_Entry]:
    suffix = path.suffix.lower()
    if suffix == ".zip" and not path.is_symlink():
        yield from _unpack(path, parts, room, 1)
    elif suffix in (".ipynb", ".zip"):
        when = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
        link = "an archive must not be a link" if suffix == ".zip" else ""
        yield _Entry(parts, None if link else path, when, link and f"{path.name}: {link}")


def _ignored(parts: tuple[str, ...]) -> bool:
    return any(part in _IGNORED or part.startswith(".") for part in parts if part not in ("..", "."))


def _wrapper(name: str, entries: list[_Entry]) -> int:
    """1 if everything in the archive lies in one folder that is no student's, else 0."""
    tops = {entry.parts[0] for entry in entries}
    if len(tops) != 1 or any(len(entry.parts) < 2 for entry in entries) or _MOODLE.match(next(iter(tops))):
        return 0
    inner = {entry.parts[1] for entry in entries}
    deep = len({e.parts[1] for e in entries if len(e.parts) > 2 and not _ATTEMPT.match(e.parts[1])}) > 1
    named = any(_MOODLE.match(part) or _CANVAS.match(part) for part in inner)
    return int(deep or named or (name in tops and len(inner) > 1))


class _Room:
    """A folder that takes notebooks under names of our own."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.count = folder, 0

    def write(self, name: str, data: bytes) -> Path:
        """Write the data into a fresh folder and return the file, its name made harmless."""
        if self.folder is None:
            self.folder = Path(mkdtemp(prefix="distgen-collect-"))
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        safe = re.sub(r"[^\w .()+-]", "_", PurePosixPath(name).name)[-100:]
        path = place / (safe if safe.strip(" .") else "notebook.ipynb")
        path.write_bytes(data)
        return path


def _unpack(archive: Path, parts: tuple[str, ...], room: _Room, depth: int) -> Iterator[_Entry]:
    """Entries for the notebooks in an archive that lies at ``parts`` of the collection."""
    try:
        if depth > MAX_DEPTH:
            raise ValueError(f"archives nested more than {MAX_DEPTH} deep")
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            if len(members) > MAX_MEMBERS:
                raise ValueError(f"{len(members)} entries, at most {MAX_MEMBERS} are read")
            for member in members:
                yield from _member(opened, member, parts, room, depth)
    except _BROKEN as error:
        yield _Entry(parts or (archive.name,), problem=f"{archive.name}: the archive cannot be read ({error})")


_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


def _member(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, parts: tuple[str, ...], room: _Room, depth: int
) -> Iterator[_Entry]:
    inside = tuple(part for part in re.split(r"[/\\]", member.orig_filename) if part not in ("", "."))
    if member.is_dir() or not inside or _ignored(inside):
        return
    own, name = parts + inside, inside[-1]
    suffix = PurePosixPath(name).suffix.lower()
    problem = _unsafe(member, inside)
    if problem:
        yield _Entry(tuple(p for p in own if p != "..") or (name,), problem=f"{name}: {problem}")
    elif suffix in (".ipynb", ".zip"):
        try:
            data = _read(opened, member, MAX_BYTES if suffix == ".ipynb" else MAX_ARCHIVE)
        except _BROKEN as error:
            yield _Entry(own, problem=f"{name}: {error}")
            return
        path = room.write(name, data)
        if suffix == ".zip":
            yield from _unpack(path, own, room, depth + 1)
            path.unlink()
        else:
            yield _Entry(own, path)


def _unsafe(member: zipfile.ZipInfo, inside: tuple[str, ...]) -> str:
    """Why the entry is refused, "" if it is not."""
    name = member.orig_filename
    if ".." in inside or name.startswith(("/", "\\")) or re.match(r"^[A-Za-z]:", name):
        return "its path leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "it is a link"
    return "it is encrypted" if member.flag_bits & 1 else ""


def _read(opened: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    """The entry's bytes; what it claims to be large is not believed, so no more than ``most`` is ever held."""
    with opened.open(member) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"larger than {most / 1e6:g} MB when unpacked")
    return data


def _owner(parts: tuple[str, ...]) -> HandIn:
    """Whose file it is, by the first part of its path."""
    top = parts[0]
    if found := _MOODLE.match(top):
        return HandIn(f"{found['name']}_{found['id']}", found["name"], "moodle", found["id"])
    if found := _canvas(parts):
        return HandIn("_".join(filter(None, (found["name"], found["id"]))), found["name"], "canvas", found["id"])
    return HandIn(PurePosixPath(top).stem if len(parts) == 1 or top.lower().endswith(".zip") else top)


def _canvas(parts: tuple[str, ...]) -> re.Match[str] | None:
    """The parts of a file's name that Canvas made; a folder of such a name is no work of Canvas."""
    single = len(parts) == 1 or parts[0].lower().endswith(".zip")
    return _CANVAS.match(parts[0]) if single else None


def _add(hand_in: HandIn, entry: _Entry) -> None:
    """Put an entry among its student's files, or say why it is not there."""
    if entry.problem:
        hand_in.refused = "; ".join(filter(None, (hand_in.refused, entry.problem)))
        return
    if entry.path is None or "_assignsubmission_onlinetext" in entry.parts[0]:
        return
    attempt, order, when, late, stamped = "", (0, 0), entry.when, False, False
    if found := _canvas(entry.parts):  # numbers of uploads grow, whatever the file is called
        late, attempt, order, when = bool(found["late"]), found["file"], (int(found["upload"]), 0), None
    for part in entry.parts[1:-1]:
        if found := _ATTEMPT.match(part):
            attempt, order = part, (int(found[1]), 0)
        elif stamp := _time(part):
            attempt, order, when, stamped = part, (stamp.timestamp(), 0), stamp, True
    hand_in.files.append(HandedFile(entry.path, attempt, order, when, late, stamped))


def _time(text: str) -> datetime | None:
    """The aware time a folder is named after, or None; a name without a zone is UTC."""
    found = _STAMP.match(text)
    if not found:
        return None
    day, hour, minute, second, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z", "UTC") else zone
    try:
        return datetime.fromisoformat(f"{day}T{hour}:{minute}:{second or '00'}{zone}")
    except ValueError:
        return None


@dataclass(frozen=True)
class Chosen:
    """The files of one student that count, and for each section (None: unknown) the attempt and what to say of it."""

    paths: list[Path]
    attempts: dict[str | None, HandedFile]
    notes: dict[str | None, str]


def choose(hand_in: HandIn, sections: Iterable[str]) -> Chosen:
    """Return, for each section, the files of the latest attempt that can be read; the others are named in a note."""
    by_section: dict[str | None, list[HandedFile]] = {}
    unreadable: list[tuple[HandedFile, str]] = []
    for file in hand_in.files:
        try:
            by_section.setdefault(_section(file.path, list(sections)), []).append(file)
        except UnreadableSubmission as error:
            unreadable.append((file, f"{file.path.name}: {error}"))
    if not by_section:
        return Chosen([file.path for file, _ in unreadable], {}, {})
    last = {name: max(files, key=lambda file: file.order) for name, files in by_section.items()}
    counted = [file.path for name, files in by_section.items() for file in files if _same_attempt(file, last[name])]
    notes = {name: _note(files, last[name], unreadable) for name, files in by_section.items()}
    return Chosen(counted, last, notes)


def _section(path: Path, sections: list[str]) -> str | None:
    """The section a notebook says it is, else the one its file is named after, else None."""
    said = Submission.read(path).section
    return said or next((name for name in sections if path.stem.startswith(name)), None)


def _same_attempt(file: HandedFile, other: HandedFile) -> bool:
    return file.order == other.order


def _note(files: list[HandedFile], last: HandedFile, unreadable: list[tuple[HandedFile, str]]) -> str:
    """Earlier attempts that do not count, and later ones that could not be read."""
    earlier = len({file.order for file in files}) - 1
    words = [f"{earlier} earlier attempt{'s' if earlier > 1 else ''} not counted"] if earlier else []
    words += [f"later attempt cannot be read ({why})" for file, why in unreadable if file.order > last.order]
    return "; ".join(words)
