"""Read NCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) as a :class:`~distgen_lab.readers.machine.Machine`.

The file is the PCI tree: ``cpu`` (one a NUMA node) > ``pci`` (switches and devices) > ``gpu`` > ``nvlink`` or ``xgmi``,
and ``nic`` > ``net``. A device's kind is its PCI class where it has no child. Speeds follow NCCL: a link carries
width x speed / 80 GB/s, an unsaid width is 16 lanes and an unsaid speed that of 8 GT/s. Entities are never
expanded: a DOCTYPE is refused.

Source: NVIDIA/nccl, src/graph/topo.cc, topo.h and xml.cc.
"""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

import networkx as nx

from distgen_lab.hardware import LINKS
from distgen_lab.nccl_tuner import MACHINES
from distgen_lab.readers.machine import Bundle, Device, Machine, build, pcie_rate
from distgen_lab.readers.source import Text, load
from distgen_lab.units import GB, MIB

__all__ = ["looks_like", "read_xml"]

_MOST = int(16 * MIB)
_DEEPEST, _MOST_ELEMENTS = 64, 100_000
_BUSID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F]{1,2})?$")
_SPEED = re.compile(r"(2\.5|5|8|16|32|64)(?:\.0)? GT/s(?: PCIe)?$")
_KINDS = (
    ("0x0604", "bridge"),
    ("0x0680", "nvswitch"),
    ("0x03", "gpu"),
    ("0x02", "nic"),
    ("0x12", "gpu"),
    ("0x0b40", "gpu"),
)
_LINKS = ("nvlink", "xgmi")
_KNOWN = {"system", "cpu", "pci", "gpu", "nic", "net", "coll", "c2c", "pcilink", *_LINKS}
_NEEDS = {
    "cpu": ("numaid",),
    "pci": ("busid",),
    "nvlink": ("target", "count"),
    "xgmi": ("target", "count"),
    "net": ("name",),
}
_NUMBER = re.compile(r"[0-9]{1,6}$")
_MOST_LINKS = 64
_INTEL = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0), (0, 6.0))  # GB/s between sockets, by least model of family 6
_BETWEEN = {"AuthenticAMD": 16.0, "arm64": 6.0, "ppc64": 32.0, "": 6.0}
_XGMI = {"gfx942": 48.0, "gfx950": 48.0, "gfx90a": 36.0, "910": 36.0}  # GB/s RCCL counts on for one link
_XGMI_ELSE = 24.0
_SM = ((100, "B200"), (90, "H100"), (0, "A100"))


@dataclass
class _Element:
    """One element: its tag, attributes, line and children."""

    tag: str
    data: dict[str, str]
    line: int
    parent: "_Element | None"
    children: list["_Element"] = field(default_factory=list)

    def all(self, *tags: str) -> Iterator["_Element"]:
        """Itself and everything below it that has one of the tags."""
        if self.tag in tags:
            yield self
        for child in self.children:
            yield from child.all(*tags)

    @property
    def above(self) -> "Iterator[_Element]":
        """Itself, its parent, and so on."""
        here: _Element | None = self
        while here is not None:
            yield here
            here = here.parent


def looks_like(text: Text) -> bool:
    """Whether the text is XML with a ``system`` element."""
    head = "\n".join(text.lines[:200]).lstrip()
    return head.startswith("<") and bool(re.search(r"<system[\s>]", head))


def read_xml(path: str | os.PathLike) -> Machine:
    """Return the machine of an NCCL or RCCL topology file.

    ``facts_read`` of the machine counts what the file holds: version, cpus, numa_ids, gpus, nics, net_ports, bridges,
    pci_depth, gpu_busids, gpu_link and nic_link (distinct (speed, width)), and the link elements of the GPUs.

    Raises:
        ReadError: for what is no such XML, ends early, has a DOCTYPE, an unknown speed, a bad address or count, links
            that contradict each other, or no class by which a GPU could be told from a NIC.
    """
    text = load(path, _MOST)
    system = _parse(text)
    return _Reader(text, system).machine()


# ------------------------------------------------------------------------------------------------ XML


def _parse(text: Text) -> _Element:
    """The ``system`` element, without ever expanding an entity."""
    first = next((n for n, line in enumerate(text.lines, 1) if line.strip()), 1)
    if not text.lines[first - 1].lstrip().startswith("<"):
        raise text.fail(f"is not XML; the first line is {text.lines[first - 1].strip()[:60]!r}", first)
    parser, top, open_elements, count = expat.ParserCreate(), [], [], 0

    def start(tag: str, data: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_elements) >= _DEEPEST or count > _MOST_ELEMENTS:
            raise text.fail(
                "is nested too deeply or too large for a topology", parser.CurrentLineNumber + first - 1, tag
            )
        parent = open_elements[-1] if open_elements else None
        element = _Element(tag, data, parser.CurrentLineNumber + first - 1, parent)
        (parent.children if parent else top).append(element)
        open_elements.append(element)

    def doctype(*_: object) -> None:
        line = parser.CurrentLineNumber + first - 1
        raise text.fail("holds a DOCTYPE, which no topology file needs; entities are not expanded", line)

    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, doctype
    parser.EndElementHandler = lambda _: open_elements.pop()
    body = re.sub(r"^\s*<\?xml[^>]*\?>", lambda head: "\n" * head[0].count("\n"), "\n".join(text.lines[first - 1 :]))
    try:
        parser.Parse(body.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise _broken(text, error, first) from None
    if top[0].tag != "system":
        graph = " (a graph file of NCCL_GRAPH_DUMP_FILE?)" if top[0].tag == "graphs" else ""
        raise text.fail(f"the top element is <{top[0].tag}>{graph}, <system> is needed", top[0].line)
    return top[0]


def _broken(text: Text, error: expat.ExpatError, first: int) -> Exception:
    """The error of XML that is cut, or wrong in some other way."""
    last = max((n for n, line in enumerate(text.lines, 1) if line.strip()), default=1)
    line = error.lineno + first - 1
    cut = (
        expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
        expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    )
    if error.code in cut or line > last:
        return text.fail("the XML ends early, the file is cut off", last)
    return text.fail(f"not valid XML ({expat.ErrorString(error.code)}, column {error.offset + 1})", line)


# ------------------------------------------------------------------------------------------------ the machine


class _Reader:
    """Checks the elements and makes the machine."""

    def __init__(self, text: Text, system: _Element) -> None:
        self.text, self.system, self.notes = text, system, list(text.notes)
        self.pcis = list(system.all("pci"))
        self._check()
        self.kinds = {id(pci): self._kind(pci) for pci in self.pcis}
        self.gpus = [pci for pci in self.pcis if self.kinds[id(pci)] == "gpu"]
        bare = [nic for nic in system.all("nic") if nic.parent is not None and nic.parent.tag != "pci"]
        self.nics = [pci for pci in self.pcis if self.kinds[id(pci)] == "nic"] + bare
        if not self.gpus:
            self._no_gpus()

    def fail(self, element: _Element, problem: str, attribute: str = "") -> Exception:
        return self.text.fail(problem, element.line, f"<{element.tag}> {attribute}".strip())

    def _check(self) -> None:
        """Every element has what it needs, once."""
        unknown: dict[str, int] = {}
        for element in self.system.all(*{e.tag for e in _everything(self.system)}):
            if element.tag not in _KNOWN:
                unknown.setdefault(element.tag, element.line)
            for name in _NEEDS.get(element.tag, ()):
                if name not in element.data:
                    raise self.fail(element, f"has no {name}", name)
        self.notes += [f"<{tag}> at line {line} is not known and was passed over" for tag, line in unknown.items()]
        seen: dict[str, int] = {}
        for pci in self.pcis:
            busid = pci.data["busid"]
            if not _BUSID.match(busid):
                raise self.fail(pci, f"{busid[:40]!r} is no PCI address such as 0000:0f:00.0", "busid")
            if busid.lower() in seen:
                raise self.fail(pci, f"{busid} is given twice (first at line {seen[busid.lower()]})", "busid")
            seen[busid.lower()] = pci.line
            self._link(pci)

    def _kind(self, pci: _Element) -> str:
        tags = {child.tag for child in pci.children}
        by_child = next((tag for tag in ("gpu", "nic") if tag in tags), "")
        if by_child:
            return by_child
        code = pci.data.get("class", "").lower()
        return next((kind for start, kind in _KINDS if code.startswith(start)), "bridge" if "pci" in tags else "other")

    def _no_gpus(self) -> None:
        blind = [pci for pci in self.pcis if not pci.data.get("class") and not pci.children]
        if blind:
            problem = f"no class on {len(blind)} devices: GPUs and NICs cannot be told apart from this file"
            raise self.fail(blind[0], problem, "class")
        raise self.text.fail("holds no GPU (no <gpu>, no pci of class 0x03....)", self.system.line)

    def _link(self, pci: _Element) -> tuple[str, str, float]:
        """Speed and width as written, and bytes/s after NCCL's rule."""
        speed, width = pci.data.get("link_speed", ""), pci.data.get("link_width", "0")
        found = _SPEED.match(speed.strip())
        if speed.strip() and not found and not speed.startswith("Unknown"):
            raise self.fail(
                pci, f'link_speed "{speed[:40]}" is unknown; "16.0 GT/s PCIe" or the like is needed', "link_speed"
            )
        if not re.fullmatch(r"\d{1,3}", width) or int(width) > 32:
            raise self.fail(pci, f'link_width "{width[:40]}"; a number of lanes from 0 to 32 is needed', "link_width")
        return speed, width, pcie_rate(int(width) or 16, float(found[1]) if found else 8.0)

    # ---- links between GPUs

    def _bundles(self) -> tuple[list[Bundle], str]:
        """NVLinks or xGMI links, each once, and which of the two they are."""
        places = {pci.data["busid"].lower(): place for place, pci in enumerate(self.gpus)}
        found, lines, kinds, loose = {}, {}, set(), 0
        for place, gpu in enumerate(self.gpus):
            for link in gpu.all(*_LINKS):
                count = self._count(link)
                kinds.add(link.tag)
                target = link.data["target"].lower()
                other = places.get(target)
                if other == place:
                    self.notes.append(
                        f"the <{link.tag}> at line {link.line} leads from a GPU to itself and was left out"
                    )
                elif other is None and (link.data.get("tclass", "").startswith("0x068000") or self._is_switch(target)):
                    found[place, None] = found.get((place, None), 0) + count
                elif other is None:
                    loose += 1
                    self.notes.append(
                        f"the <{link.tag}> at line {link.line} leads to {target}, which is no GPU of the file"
                    )
                else:
                    if (place, other) in found:
                        raise self.fail(
                            link, f"{target} is given twice for this GPU (line {lines[place, other]})", "target"
                        )
                    found[place, other], lines[place, other] = count, link.line
        return self._paired(found, lines), "xgmi" if kinds == {"xgmi"} else "nvlink"

    def _paired(self, found: dict, lines: dict) -> list[Bundle]:
        bundles = []
        for (place, other), count in found.items():
            if other is None:
                bundles.append(Bundle(place, None, count))
                continue
            back = found.get((other, place))
            if back is not None and back != count:
                problem = f"{count} links from GPU {place} to {other} (line {lines[place, other]}), {back} back"
                raise self.text.fail(problem, lines[other, place], "count")
            if back is None:
                self.notes.append(f"line {lines[place, other]}: the links from GPU {place} to {other} have no way back")
            if back is None or place < other:
                bundles.append(Bundle(place, other, count))
        return bundles

    def _count(self, link: _Element) -> int:
        count = link.data["count"]
        if not re.fullmatch(r"\d{1,3}", count) or not 1 <= int(count) <= _MOST_LINKS:
            raise self.fail(link, f'count "{count[:40]}"; a number of links from 1 to {_MOST_LINKS} is needed', "count")
        return int(count)

    def _is_switch(self, target: str) -> bool:
        return any(self.kinds[id(p)] == "nvswitch" and p.data["busid"].lower() == target for p in self.pcis)

    # ---- PCIe

    def _tree(self, leaves: dict[int, object]) -> nx.Graph:
        """The PCI tree; NUMA nodes hang on one node that stands for the links between sockets."""
        graph = nx.Graph()
        cpus = [child for child in self.system.children if child.tag == "cpu"]
        for element in (*self.pcis, *(nic for nic in self.nics if nic.tag == "nic")):
            if not any(id(below) in leaves for below in _everything(element)):
                continue
            rate = self._link(element)[2] if element.tag == "pci" else pcie_rate(16, 16)
            graph.add_edge(self._node(element, leaves), self._node(element.parent, leaves), capacity=rate)
        for cpu in cpus:
            node = ("cpu", cpu.data["numaid"])
            if len(cpus) > 1 and node in graph:
                graph.add_edge(node, ("system", 0), capacity=self._between(cpu))
        return graph

    def _node(self, element: _Element | None, leaves: dict[int, object]) -> object:
        assert element is not None
        if id(element) in leaves:
            return leaves[id(element)]
        if element.tag == "system":
            return ("system", 0)
        return (
            ("cpu", element.data["numaid"]) if element.tag == "cpu" else (element.tag, element.data.get("busid", "0"))
        )

    def _between(self, cpu: _Element) -> float:
        """Bytes/s between sockets that NCCL counts on for this processor."""
        vendor = cpu.data.get("vendor", "")
        model = cpu.data.get("modelid", "0")
        if vendor == "GenuineIntel" and _NUMBER.match(model):
            return next(rate for least, rate in _INTEL if int(model) >= least) * GB
        return _BETWEEN.get(vendor, _BETWEEN.get(cpu.data.get("arch", ""), _BETWEEN[""])) * GB

    def _way(self, one: _Element, other: _Element) -> str:
        """The code of the way over PCIe: at most one switch, several, the CPU, between NUMA nodes."""
        mine = [e for e in one.above if e.tag in ("pci", "cpu")]
        theirs = [e for e in other.above if e.tag in ("pci", "cpu")]
        meet = next((e for e in mine if any(e is t for t in theirs)), None)
        if meet is None:
            return "SYS"
        if meet.tag == "cpu":
            return "PHB"
        bridges = sum(next(i for i, e in enumerate(way) if e is meet) - 1 for way in (mine, theirs))
        return "PIX" if bridges == 0 else "PXB"

    # ---- everything together

    def machine(self) -> Machine:
        """The machine, with the facts of the file."""
        bundles, kind = self._bundles()
        if not bundles:
            self.notes.append("no NVLink or xGMI stands in the file (NCCL looks for them itself, where they are)")
        labels = {id(nic): self._label(nic) for nic in self.nics}
        leaves: dict[int, object] = {id(gpu): place for place, gpu in enumerate(self.gpus)}
        leaves |= {id(nic): ("nic", labels[id(nic)]) for nic in self.nics}
        devices = [self._device(pci) for pci in self.gpus]
        devices += [Device(labels[id(nic)], "nic", labels[id(nic)], _numa(nic)) for nic in self.nics]
        elements = [*self.gpus, *self.nics]
        codes = {
            (a.name, b.name): self._way(x, y)
            for (a, x), (b, y) in itertools.combinations(zip(devices, elements, strict=True), 2)
        }
        for bundle in bundles:
            if bundle.other is not None:
                pair = (devices[bundle.gpu].name, devices[bundle.other].name)
                codes[pair if pair in codes else pair[::-1]] = "XGMI" if kind == "xgmi" else f"NV{bundle.links}"
        bandwidth, rate = self._rates(kind, bundles)
        tool = "RCCL topology XML" if kind == "xgmi" or self.system.data.get("version") == "2" else "NCCL topology XML"
        name = f"{len(self.gpus)} GPUs of {os.path.basename(self.text.path)}"
        tree = self._tree(leaves)
        args = (name, tool, self.text.path, devices, codes, bundles, bandwidth, rate, self.notes)
        return build(*args, tree=tree, facts_read=self._facts(kind))

    def _label(self, nic: _Element) -> str:
        nets = [net.data["name"] for net in nic.all("net")]
        return nets[0] if nets else nic.data.get("busid", f"nic at line {nic.line}")

    def _device(self, pci: _Element) -> Device:
        return Device(pci.data["busid"], "gpu", pci.data["busid"], _numa(pci))

    def _rates(self, kind: str, bundles: list[Bundle]) -> tuple[float, float]:
        """Bytes/s of one link, and what NCCL or RCCL counts on for it."""
        if kind == "xgmi":
            gcn = next((gpu.data.get("gcn", "") for gpu in self.system.all("gpu")), "")
            return LINKS["xGMI, one link"].bandwidth, _XGMI.get(gcn, _XGMI_ELSE) * GB
        sm = next((gpu.data.get("sm", "") for gpu in self.system.all("gpu")), "")
        known = _NUMBER.match(sm) is not None
        if not known and bundles:
            self.notes.append("no compute capability (sm) on the GPUs: NVLinks taken as those of A100")
        name = next(name for least, name in _SM if (int(sm) if known else 80) >= least)
        bandwidth = LINKS["NVLink 5, one link" if name == "B200" else "NVLink 4, one link"].bandwidth
        return bandwidth, MACHINES[name].scaleup / {"A100": 12, "H100": 18, "B200": 18}[name]

    def _facts(self, kind: str) -> dict[str, object]:
        cpus = [child for child in self.system.children if child.tag == "cpu"]
        links = [list(gpu.all(kind)) for gpu in self.gpus]
        depths = (sum(e.tag == "pci" for e in pci.above) for pci in self.pcis)
        written = [sorted({self._link(p)[:2] for p in some if p.tag == "pci"}) for some in (self.gpus, self.nics)]
        return {
            "version": self.system.data.get("version"), "cpus": len(cpus), "numa_ids": [c.data["numaid"] for c in cpus],
            "gpus": len(self.gpus), "nics": len(self.nics), "net_ports": len(list(self.system.all("net"))),
            "bridges": sum(self.kinds[id(pci)] == "bridge" for pci in self.pcis), "pci_depth": max(depths, default=0),
            "gpu_busids": [gpu.data["busid"] for gpu in self.gpus],
            "gpu_link": written[0], "nic_link": written[1],
            f"{kind}_elements": sum(map(len, links)),
            f"{kind}_links_per_gpu": [sum(self._count(link) for link in some) for some in links],
            f"{kind}_self_links": sum(link.data["target"].lower() == gpu.data["busid"].lower()
                                      for gpu, some in zip(self.gpus, links, strict=True) for link in some),
            f"{kind}_targets": len({link.data["target"].lower() for some in links for link in some}),
        }  # fmt: skip


def _everything(element: _Element) -> Iterator[_Element]:
    """An element and all below it."""
    yield element
    for child in element.children:
        yield from _everything(child)


def _numa(element: _Element) -> str:
    return next((e.data["numaid"] for e in element.above if e.tag == "cpu"), "")
