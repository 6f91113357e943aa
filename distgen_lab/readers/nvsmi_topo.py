"""Read the tables of ``nvidia-smi``, ``rocm-smi`` and ``amd-smi`` as a Machine (:mod:`distgen_lab.readers.machine`).

nvidia-smi prints one matrix of codes (its legend stands below it in the file) and CPU affinities; a pair that has
NVLinks shows their number and hides its way over PCIe. Behind NVSwitches every pair shows all links of a GPU, so that
pairs add up to more links than any GPU has: such GPUs are put on a switch. The generation of the links does not stand
there; it is inferred from their number and said in ``notes``, or named by the argument ``accelerator``.

``rocm-smi --showtopo`` prints a matrix of weights, one of hops and one of link types under titles of their own; for
``amd-smi topology`` see :mod:`distgen_lab.readers.amd_smi`.
"""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import networkx as nx

from distgen_lab.hardware import ACCELERATORS, LINKS, accelerator
from distgen_lab.nccl_tuner import MACHINES
from distgen_lab.readers import amd_smi
from distgen_lab.readers.machine import CODES, NVLINK_MOST, Bundle, Device, Machine, build
from distgen_lab.readers.source import Text, load, unquoted

__all__ = ["looks_like", "read_topology"]

_GPU = re.compile(r"GPU\d{1,4}$")
_NIC = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]*\d[A-Za-z0-9_.:-]*$")
_CODE = re.compile(r"NV\d{1,3}$")
_CODES_RUN = re.compile(r"NODE|SYS|SOC|PHB|PXB|PIX|NV\d{1,3}|X")  # no code begins another
_ALL_CODES = re.compile(rf"(?:{_CODES_RUN.pattern})+")
_NAMES_RUN = re.compile(r"(?:(?:GPU|NIC)\d+){2,}$")
_AFFINITY = re.compile(r"(?:CPU|NUMA)\s*Affinity|GPU\s+NUMA\s+ID")
_LEGEND = re.compile(r"(?:^|[\s>#|:])(NIC\d+)\s*[:=]\s*(\S+)\s*$")
_LEAD = re.compile(r"^[\s>#|]+")
_MIG = re.compile(r"(?:GPU\s*\d+\s*[/:]\s*)?MIG[\s\d_-]")
_MOST_DEVICES = 1024
_OLD_CODES = {"SOC": "SYS"}  # what SYS was called before driver 384
_ROCM = re.compile(r"=+ (Weight|Hops|Link Type|Link type) between two GPUs =+")
_ROCM_NUMA = re.compile(r"GPU\[(\d+)\]\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)")


def looks_like(text: Text) -> bool:
    """Whether the text holds such a matrix, or what these tools print instead of one."""
    lines = [*map(_strip, text.lines)]
    found = any(_header(line) or _ROCM.search(line) or _names_slices(line) for line in lines)
    return found or amd_smi.looks_like(text) or _says_instead(text) is not None


def read_topology(path: str | os.PathLike, accelerator: str | None = None) -> Machine:
    """Return the machine that ``nvidia-smi topo -m``, ``rocm-smi --showtopo`` or ``amd-smi topology`` shows.

    Args:
        path: the file.
        accelerator: name of the GPU in :data:`distgen_lab.hardware.ACCELERATORS`, for the bandwidth of its links.

    Raises:
        ReadError: for a file without a matrix, with two, or with a matrix that contradicts itself: a row that is
            missing or given twice, an unknown code, two devices whose two codes differ.
    """
    text = load(path)
    if any(_ROCM.search(line) for line in text.lines):
        return _read_rocm(text)
    if amd_smi.looks_like(text):
        return amd_smi.read_amd_smi(text)
    return _read_nvidia(text, accelerator)


# ------------------------------------------------------------------------------------------------ nvidia-smi


@dataclass
class _Matrix:
    """Cells by row and column, with the line of each row."""

    line: int
    names: list[str]
    rows: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    rest: dict[str, list[str]] = field(default_factory=dict)

    def pairs(self) -> Iterator[tuple[str, str, str, str]]:
        """(row, column, cell, the cell on the other side of the diagonal)."""
        for (i, one), (j, other) in itertools.combinations(enumerate(self.names), 2):
            yield one, other, self.rows[one][j], self.rows[other][i]


def _strip(line: str) -> str:
    """Without what quoting puts before a line."""
    return _LEAD.sub("", unquoted(line)).rstrip()


def _header(line: str) -> list[str]:
    """The device names of a header line; [] for any other line."""
    words = _AFFINITY.split(line, maxsplit=1)[0].split()
    names = [name for word in words for name in (re.findall(r"[A-Z]+\d+", word) if _NAMES_RUN.match(word) else [word])]
    if not names or not _GPU.match(names[0]) or not (_AFFINITY.search(line) or len(names) > 1):
        return []
    return (
        names
        if all(
            _GPU.match(name) or (_NIC.match(name) and not _is_code(name) and not name.startswith("MIG"))
            for name in names
        )
        else []
    )


def _is_code(cell: str) -> bool:
    return cell == "X" or cell in CODES or cell in _OLD_CODES or bool(re.match(r"NV-?\d+$", cell))


def _names_slices(line: str) -> bool:
    """Whether a header names MIG slices among the GPUs; a row goes on with a code."""
    words = line.split()
    return bool(words) and bool(_GPU.match(words[0])) and "MIG" in line and not _is_code([*words, ""][1])


def _says_instead(text: Text) -> str | None:
    """What is wrong with a text of these tools that holds no matrix; None if it is not theirs."""
    whole = "\n".join(text.lines[:60])
    if re.search(r"NVIDIA-SMI \d[\d.]* +Driver Version|\| +GPU +Name ", whole):
        return "this is the table of `nvidia-smi`; the output of `nvidia-smi topo -m` is needed"
    first = next(line.strip() for line in text.lines if line.strip())
    if re.search(r"NVIDIA-SMI has failed|nvidia-smi: (?:command )?not found|Failed to initialize NVML", whole):
        return f"there is no table; the tool said {first[:120]!r}"
    return None


def _read_nvidia(text: Text, gpu: str | None) -> Machine:
    matrix = _nvidia_matrix(text)
    codes = _checked_codes(text, matrix)
    labels = _legend(text, matrix.names)
    devices = [_device(matrix, name, labels) for name in matrix.names]
    gpus = [device.name for device in devices if device.kind == "gpu"]
    notes = list(text.notes) + _gaps(gpus) + _slices(text)
    notes += [f"{name} stands in the NIC legend but not in the table" for name in labels if name not in matrix.names]
    bundles = _bundles(gpus, codes)
    bandwidth, rate = _generation(bundles, gpu, notes)
    if any(device.kind == "nic" and device.name.startswith("NIC") and not device.label for device in devices):
        notes.append("the NIC legend is missing or not complete: NICs without a name keep their number")
    notes.append("PCIe taken as 4.0 x16: its speed does not stand in the file")
    name = f"{len(gpus)} GPUs of {os.path.basename(text.path)}"
    return build(name, "nvidia-smi", text.path, devices, codes, bundles, bandwidth, rate, notes)


def _nvidia_matrix(text: Text) -> _Matrix:
    matrix = None
    for number, raw in enumerate(text.lines, 1):
        line = _strip(raw)
        names = _header(line)
        if names:
            if matrix is not None:
                problem = f"a second table begins (the first is at line {matrix.line}); one file holds one machine"
                raise text.fail(problem, number)
            matrix = _new_matrix(text, number, names)
        elif matrix is not None and (cells := line.split()) and cells[0] in matrix.names:
            _add_row(text, matrix, number, cells)
        elif _names_slices(line):
            raise text.fail("MIG slices stand among the GPUs; a table of whole GPUs is needed (switch MIG off)", number)
        elif (cells := line.split()) and _GPU.match(cells[0]) and len(cells) > 1 and _is_code(cells[1]):
            where = "stands before the header" if matrix is None else "is not in the header"
            raise text.fail(f"row {cells[0]} {where}", number, cells[0])
    if matrix is None:
        raise text.fail(
            _says_instead(text) or "no table of `nvidia-smi topo -m` here: no line names GPU0, GPU1, ...", 1
        )
    missing = [name for name in matrix.names if name not in matrix.rows]
    if missing:
        count = sum(bool(_GPU.match(name)) for name in matrix.names)
        raise text.fail(f"row {missing[0]} is missing (the header names {count} GPUs)", matrix.line, missing[0])
    return matrix


def _new_matrix(text: Text, number: int, names: list[str]) -> _Matrix:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise text.fail(f"the header names {twice} twice", number, twice)
    if len(names) > _MOST_DEVICES:
        raise text.fail(f"the header names {len(names)} devices; at most {_MOST_DEVICES} are read", number)
    return _Matrix(number, names)


def _add_row(text: Text, matrix: _Matrix, number: int, cells: list[str]) -> None:
    name, cells = cells[0], [code for cell in cells[1:] for code in _apart(cell)]
    if name in matrix.rows:
        raise text.fail(f"row {name} is given twice (first at line {matrix.lines[name]})", number, name)
    count = len(matrix.names)
    if len(cells) < count:
        raise text.fail(f"row {name} has {len(cells)} cells, the header {count} devices", number, name)
    for column, cell in zip(matrix.names, cells, strict=False):
        _check_cell(text, number, name, column, cell)
    rest = cells[count:]
    if any(_is_code(cell) for cell in rest):
        raise text.fail(f"row {name} has more links than the header has devices", number, name)
    matrix.rows[name] = [_OLD_CODES.get(cell, cell) for cell in cells[:count]]
    matrix.lines[name], matrix.rest[name] = number, rest


def _apart(cell: str) -> list[str]:
    """A cell, or the codes of cells that ran together where a wide table was wrapped: "NODEPIX"."""
    return _CODES_RUN.findall(cell) if _ALL_CODES.fullmatch(cell) else [cell]


def _check_cell(text: Text, number: int, row: str, column: str, cell: str) -> None:
    pair = f"{row}-{column}"
    if (cell == "X") != (row == column):
        problem = f"the diagonal {pair} is {cell!r}, X is needed" if row == column else f"X off the diagonal, at {pair}"
        raise text.fail(problem, number, pair)
    if cell == "X" or cell in CODES or cell in _OLD_CODES:
        return
    if not _CODE.match(cell) or int(cell[2:]) == 0:
        known = ", ".join(CODES)
        bad = "bad" if cell.startswith("NV") else "unknown"
        raise text.fail(f'{bad} link "{cell[:40]}" at {pair}; known are NV1 to NV999, {known}', number, pair)


def _checked_codes(text: Text, matrix: _Matrix) -> dict[tuple[str, str], str]:
    codes = {}
    for one, other, here, there in matrix.pairs():
        if here != there:
            problem = f"{one}-{other} is {here} but {other}-{one} is {there} (line {matrix.lines[other]})"
            raise text.fail(problem, matrix.lines[one], f"{one}/{other}")
        if here.startswith("NV") and not (_GPU.match(one) and _GPU.match(other)):
            raise text.fail(f"{one}-{other} is {here}; only GPUs have NVLinks", matrix.lines[one], f"{one}-{other}")
        codes[one, other] = here
    return codes


def _legend(text: Text, names: list[str]) -> dict[str, str]:
    """The names of the NICs from the legend."""
    labels: dict[str, str] = {}
    for number, raw in enumerate(text.lines, 1):
        found = _LEGEND.search(raw)
        if found and labels.setdefault(found[1], found[2]) != found[2]:
            raise text.fail(f"{found[1]} is {found[2]} here and {labels[found[1]]} above", number, found[1])
    _drop_cut_label(text, labels, names)
    return labels


def _drop_cut_label(text: Text, labels: dict[str, str], names: list[str]) -> None:
    """The last name of a legend that is not complete and ends without a line end may be cut."""
    last = _LEGEND.search(text.lines[-1])
    if last and any(name.startswith("NIC") and name not in labels for name in names):
        del labels[last[1]]


def _device(matrix: _Matrix, name: str, labels: dict[str, str]) -> Device:
    if not _GPU.match(name):
        return Device(name, "nic", labels.get(name, "" if name.startswith("NIC") else name))
    rest = matrix.rest[name]
    numa = rest[1] if len(rest) > 1 and rest[1] != "N/A" else rest[0] if rest and rest[0] != "N/A" else ""
    return Device(name, "gpu", numa=numa)


def _gaps(gpus: list[str]) -> list[str]:
    numbers = {int(name[3:]) for name in gpus}
    missing = sorted(set(range(max(numbers))) - numbers)
    return [f"GPU{number} does not stand in the table: it may have fallen off the bus" for number in missing]


def _slices(text: Text) -> list[str]:
    """A note where rows of MIG slices stand below those of the GPUs."""
    count = sum(bool(_MIG.match(_strip(line))) for line in text.lines)
    said = "rows of MIG slices are left out; NCCL joins no slices over NVLink, whatever links their GPUs have"
    return [f"{count} {said}"] if count else []


def _bundles(gpus: list[str], codes: dict[tuple[str, str], str]) -> list[Bundle]:
    """Links between pairs; for GPUs whose pairs add up to more than any GPU has, links to switches."""
    pairs = nx.Graph()
    pairs.add_nodes_from(range(len(gpus)))
    for (i, one), (j, other) in itertools.combinations(enumerate(gpus), 2):
        if codes[one, other].startswith("NV"):
            pairs.add_edge(i, j, links=int(codes[one, other][2:]))
    found: list[Bundle] = []
    for part in map(pairs.subgraph, nx.connected_components(pairs)):
        if max(links for _, links in part.degree(weight="links")) > NVLINK_MOST:
            most = {gpu: max(data["links"] for data in part[gpu].values()) for gpu in part}
            found += [Bundle(gpu, None, links) for gpu, links in sorted(most.items())]
        else:
            found += [Bundle(i, j, data["links"]) for i, j, data in sorted(part.edges(data=True))]
    return found


def _generation(bundles: list[Bundle], gpu: str | None, notes: list[str]) -> tuple[float, float]:
    """Bytes/s of one NVLink, and what NCCL counts on for it."""
    if gpu is not None:
        device = accelerator(gpu)
        scale = device.neighbour.bandwidth / ACCELERATORS["H100"].neighbour.bandwidth
        name = gpu if gpu in MACHINES else "H100" if device.links > 12 else "A100"
        return device.neighbour.bandwidth, _per_link(name) if gpu in MACHINES else _per_link(name) * scale
    per_gpu: dict[int, int] = {}
    for bundle in bundles:
        for end in (bundle.gpu, bundle.other):
            if end is not None:
                per_gpu[end] = per_gpu.get(end, 0) + bundle.links
    most = max(per_gpu.values(), default=0)
    if most:
        kind = "H100 or H200" if most > 12 else "A100" if most > 6 else "V100"
        notes.append(
            f"NVLinks taken as those of {kind} (25 GB/s per direction) by their number, {most} a GPU"
            + ("; a B200 has as many of 50 GB/s: name it with the argument accelerator" if most == NVLINK_MOST else "")
        )
    return LINKS["NVLink 4, one link"].bandwidth, _per_link("H100" if most > 12 else "A100")


def _per_link(name: str) -> float:
    """What NCCL's tuner counts on for one NVLink."""
    return MACHINES[name].scaleup / ACCELERATORS[name].links


# ------------------------------------------------------------------------------------------------ rocm-smi


def _read_rocm(text: Text) -> Machine:
    tables = _rocm_tables(text)
    if "Link Type" not in tables:
        _refuse_types_as_weights(text, tables)
        raise text.fail('no matrix under "Link Type between two GPUs"; run `rocm-smi --showtopo`', 1)
    for title, matrix in tables.items():
        _check_rocm(text, title, matrix)
    types = tables["Link Type"]
    codes = {(one, other): here for one, other, here, _ in types.pairs()}
    numa = {f"GPU{found[1]}": found[2] for line in text.lines if (found := _ROCM_NUMA.search(line))}
    devices = [Device(name, "gpu", numa=numa.get(name, "")) for name in types.names]
    places = {name: place for place, name in enumerate(types.names)}
    weights = {(one, other): here for one, other, here, _ in tables["Weight"].pairs()} if "Weight" in tables else {}
    xgmi = {pair: weights.get(pair, "0") for pair, code in codes.items() if code == "XGMI"}
    bundles = [Bundle(places[one], places[other], 1) for one, other in amd_smi.direct_pairs(xgmi)]
    notes = [*text.notes, *amd_smi.xgmi_notes(len(xgmi), len(bundles))]
    notes += [
        f"the tool warned: {line.strip()}" for line in text.lines if line.strip().startswith(("WARNING", "ERROR"))
    ]
    ways = {pair: code if code == "XGMI" else _pcie_code(pair, numa) for pair, code in codes.items()}
    facts = {title: {(a, b): here for a, b, here, _ in matrix.pairs()} for title, matrix in tables.items()}
    link = LINKS["xGMI, one link"].bandwidth
    name = f"{len(devices)} GPUs of {os.path.basename(text.path)}"
    return build(name, "rocm-smi", text.path, devices, ways, bundles, link, amd_smi.XGMI_RATE, notes, facts_read=facts)


def _pcie_code(pair: tuple[str, str], numa: dict[str, str]) -> str:
    """rocm-smi says PCIE only; the NUMA nodes tell whether a pair crosses sockets."""
    return "NODE" if len({numa.get(name, "") for name in pair}) == 1 else "SYS"


def _rocm_tables(text: Text) -> dict[str, _Matrix]:
    tables: dict[str, _Matrix] = {}
    title, matrix = "", None
    for number, raw in enumerate(text.lines, 1):
        line = _strip(raw)
        if found := _ROCM.search(line):
            title, matrix = found[1].title(), None
            if title in tables:
                raise text.fail(f'"{title} between two GPUs" begins a second time', number, title)
        elif re.match(r"={5,}", line):
            title, matrix = "", None
        elif title and (cells := line.split()) and all(map(_GPU.match, cells)) and (len(cells) > 1 or matrix is None):
            matrix = tables[title] = _new_matrix(text, number, cells)
        elif matrix is not None and line and (cells := line.split())[0] in matrix.names:
            _add_rocm_row(text, matrix, number, cells)
    return tables


def _add_rocm_row(text: Text, matrix: _Matrix, number: int, cells: list[str]) -> None:
    name, cells = cells[0], cells[1:]
    if name in matrix.rows:
        raise text.fail(f"row {name} is given twice (first at line {matrix.lines[name]})", number, name)
    if len(cells) != len(matrix.names):
        raise text.fail(f"row {name} has {len(cells)} cells, the header {len(matrix.names)} GPUs", number, name)
    matrix.rows[name], matrix.lines[name] = cells, number


def _refuse_types_as_weights(text: Text, tables: dict[str, _Matrix]) -> None:
    """A known defect: link types, and XXXX for what is not known, printed under the heading of the weights."""
    for title, matrix in tables.items():
        for name, cells in matrix.rows.items():
            bad = next((cell for cell in cells if not re.fullmatch(r"\d+", cell)), None)
            if bad is not None:
                problem = (
                    f'"{title} between two GPUs" holds {bad!r}, no number (a known defect of rocm-smi); nothing is read'
                )
                raise text.fail(problem, matrix.lines[name], name)


def _check_rocm(text: Text, title: str, matrix: _Matrix) -> None:
    missing = [name for name in matrix.names if name not in matrix.rows]
    if missing:
        raise text.fail(f'row {missing[0]} is missing under "{title} between two GPUs"', matrix.line, missing[0])
    allowed = r"XGMI|PCIE" if title == "Link Type" else r"\d{1,9}"
    for place, name in enumerate(matrix.names):
        for column, cell in zip(matrix.names, matrix.rows[name], strict=True):
            good = cell == "0" if name == column else re.fullmatch(allowed, cell)
            if not good:
                wanted = (
                    "0 on the diagonal" if name == column else "XGMI or PCIE" if title == "Link Type" else "a number"
                )
                problem = f'"{cell[:40]}" under "{title} between two GPUs"; {wanted} is needed'
                raise text.fail(problem, matrix.lines[name], f"{name}-{column}")
        for column, other in enumerate(matrix.names):
            if matrix.rows[name][column] != matrix.rows[other][place]:
                problem = (
                    f"{name}-{other} is {matrix.rows[name][column]} but {other}-{name} is {matrix.rows[other][place]}"
                )
                raise text.fail(problem, matrix.lines[name], f"{name}/{other}")
