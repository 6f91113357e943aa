"""Topology readers: matrices and XML against searches that know nothing of the readers, and what is refused."""

import gzip
import itertools

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import readers, sample
from distgen_lab.nccl_tuner import MACHINES
from distgen_lab.readers import ReadError, read, read_topology, read_xml
from distgen_lab.readers.machine import Bundle, Device, build, expected_busbw, pcie_rate, rings
from distgen_lab.topology import Topology, dgx1v, dgx_a100, dgx_h100


def matrix(names, code, tail="\t0-31\t0\tN/A", sep="\t"):
    """nvidia-smi's table for devices, with the code of each pair from a function."""
    head = sep + sep.join(names) + f"{sep}CPU Affinity{sep}NUMA Affinity{sep}GPU NUMA ID"
    rows = [
        sep.join([a, *(" X " if a == b else code(a, b) for b in names)]) + (tail if a[0] == "G" else "") for a in names
    ]
    return "\n".join([head, *rows]) + "\n"


def gpus(count):
    return [f"GPU{i}" for i in range(count)]


def written(tmp_path, text, name="topo.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(tmp_path, text, name="topo.txt"):
    with pytest.raises(ReadError) as caught:
        read(written(tmp_path, text, name))
    assert str(tmp_path / name) in str(caught.value)
    return str(caught.value)


# ----------------------------------------------------------------------------- nvidia-smi


def test_a_machine_is_a_topology_with_its_gpus_as_hosts(tmp_path):
    machine = read_topology(written(tmp_path, matrix(gpus(8), lambda a, b: "NV12")))
    assert isinstance(machine, Topology) and machine.hosts == 8 and machine.switched
    assert machine.links_per_gpu() == [12] * 8 and machine.pair_links() == [84] * 8
    assert sum(dgx_a100().graph[0][node]["capacity"] for node in dgx_a100().graph[0]) == 12 * 25e9
    assert machine.graph[0]["nvswitch", 0]["capacity"] == 12 * 25e9
    assert all(machine.route(a, b) == [a, ("nvswitch", 0), b] for a, b in itertools.permutations(range(8), 2))


def test_links_of_a_cube_mesh_are_those_of_the_catalogue(tmp_path):
    catalogue = dgx1v()

    def code(a, b):
        edge = catalogue.graph.get_edge_data(int(a[3:]), int(b[3:]))
        return f"NV{edge['links']}" if edge else "SYS"

    machine = read_topology(written(tmp_path, matrix(gpus(8), code)))
    mine = {frozenset((b.gpu, b.other)): b.links for b in machine.bundles}
    assert mine == {frozenset((u, v)): data["links"] for u, v, data in catalogue.graph.edges(data=True)}
    assert machine.links_per_gpu() == [6] * 8 and not machine.switched
    assert rings(machine).count == 6 and sorted(rings(machine).order) == list(range(8))


def test_a_gpu_off_nvlink_is_found_in_the_packaged_sample():
    machine = read(sample("topology-gpu-off-nvlink.txt"))
    assert machine.links_per_gpu() == [18, 18, 18, 18, 18, 0, 18, 18]
    assert rings(machine).over == "PCIe" and machine.link("GPU5", "GPU4") == "NODE"
    assert machine.nearest()[7].code == "NODE" and machine.nearest()[0].nics == ("mlx5_0",)


CODE = st.sampled_from(["NV2", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS"])


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(0, 4), st.sampled_from(["\t", "   "]))
def test_any_matrix_comes_back_as_it_was_written(tmp_path_factory, data, count, nics, sep):
    names = gpus(count) + [f"NIC{i}" for i in range(nics)]
    codes = {}
    for a, b in itertools.combinations(names, 2):
        codes[a, b] = codes[b, a] = data.draw(CODE if b[0] == "G" else CODE.filter(lambda c: c[:2] != "NV"))
    text = matrix(names, lambda a, b: codes[a, b], sep=sep)
    dressed = data.draw(
        st.sampled_from(
            [
                lambda t: t,
                lambda t: t.replace("\n", "\r\n"),
                lambda t: "\ufeff" + t,
                lambda t: "".join(f"> {x}\n" for x in t.splitlines()),
                lambda t: "".join(f"# {x}\n" for x in t.splitlines()),
                lambda t: "".join(f"[1,0]<stdout>:{x}\n" for x in t.splitlines()),
                lambda t: "".join(f"\x1b[4m{x}\x1b[0m\n" for x in t.splitlines()),
                lambda t: "user@host:~$ nvidia-smi topo -m\n" + t,
            ]
        )
    )
    path = written(tmp_path_factory.mktemp("t"), dressed(text))
    machine = read_topology(path)
    assert {pair: machine.link(*pair) for pair in codes} == codes
    for near in machine.nearest():
        order = ("PIX", "PXB", "PHB", "NODE", "SYS")
        ways = {nic: order.index(codes[near.gpu, nic]) for nic in names[count:]}
        assert list(near.nics) == [nic for nic, way in ways.items() if way == min(ways.values())]


def test_headings_that_run_together_old_codes_and_latin1_are_read(tmp_path):
    text = matrix(["GPU0", "GPU1", "NIC0", "NIC11"], lambda a, b: "SOC").replace(
        "NIC11\tCPU Affinity", "NIC11CPU Affinity", 1
    )
    machine = read_topology(written(tmp_path, text.encode() + b"\n# caf\xe9\n"))
    assert [nic.name for nic in machine.nics] == ["NIC0", "NIC11"] and machine.link("GPU0", "GPU1") == "SYS"
    assert any("Latin-1" in note for note in machine.notes)


def test_cells_that_ran_together_where_a_line_was_wrapped_are_taken_apart(tmp_path):
    names = ["GPU0", "GPU1", "NIC0", "NIC1", "NIC2"]

    def code(a, b):
        return "NV18" if a[0] == b[0] == "G" else "PIX" if a[-1] == b[-1] else "NODE"

    text = matrix(names, code)
    run = (
        text.replace("PIX\tNODE\tNODE", "PIXNODENODE")
        .replace("NV18\t X ", "NV18X")
        .replace("NIC1\tNIC2\tCPU", "NIC1NIC2CPU")
    )
    assert run != text and "PIXNODENODE" in run and "NV18X" in run
    assert read_topology(written(tmp_path, run)).codes == read_topology(written(tmp_path, text)).codes
    assert "NODEPIXNOD" in refusal(tmp_path, text.replace("NODE\tPIX\tNODE", "NODEPIXNOD\tPIX\tPIX"))


def test_blank_affinity_and_legend_names(tmp_path):
    text = matrix(["GPU0", "GPU1", "NIC0"], lambda a, b: "PHB", tail="") + "\nNIC Legend:\n\n  NIC0: bnxt_re0\n"
    machine = read_topology(written(tmp_path, text))
    assert machine.nics[0].shown == "bnxt_re0" and machine.nearest()[0].nics == ("bnxt_re0",)
    cut = matrix(["GPU0", "NIC0", "NIC1"], lambda a, b: "PHB") + "NIC Legend:\n  NIC0: mlx5_1"
    assert [nic.label for nic in read_topology(written(tmp_path, cut)).nics] == ["", ""]


def test_the_accelerator_settles_the_bandwidth_of_a_link(tmp_path):
    path = written(tmp_path, matrix(gpus(8), lambda a, b: "NV18"))
    guessed, named = read_topology(path), read_topology(path, accelerator="B200")
    assert expected_busbw(guessed) == MACHINES["H100"].scaleup and "B200" in " ".join(guessed.notes)
    assert expected_busbw(named) == pytest.approx(MACHINES["B200"].scaleup)
    assert named.link_bandwidth == 50e9 and not any("taken as those" in note for note in named.notes)
    with pytest.raises(ValueError, match="H1000"):
        read_topology(path, accelerator="H1000")


def test_what_contradicts_itself_is_refused(tmp_path):
    good = matrix(gpus(4), lambda a, b: "NV6")
    assert "second table begins" in refusal(tmp_path, good + "\n" + good)
    assert "names GPU1 twice" in refusal(tmp_path, good.replace("GPU2", "GPU1"))
    assert "3 cells" in refusal(tmp_path, good.replace("GPU3\tNV6\tNV6\tNV6\t X \t0-31\t0\tN/A", "GPU3\tNV6\tNV6\tNV6"))
    assert '"NV0"' in refusal(tmp_path, good.replace("NV6", "NV0"))
    assert '"ERR!"' in refusal(tmp_path, good.replace("NV6", "ERR!", 1))
    nic = matrix(["GPU0", "NIC0"], lambda a, b: "NV2")
    assert "only GPUs have NVLinks" in refusal(tmp_path, nic)
    legend = matrix(["GPU0", "NIC0"], lambda a, b: "PIX") + "NIC0: mlx5_0\nNIC0: mlx5_9\n"
    assert "mlx5_9 here and mlx5_0 above" in refusal(tmp_path, legend)


def test_a_link_that_is_not_there_names_the_devices(tmp_path):
    machine = read_topology(written(tmp_path, matrix(gpus(2), lambda a, b: "PHB")))
    with pytest.raises(ValueError, match="devices are GPU0, GPU1"):
        machine.link("GPU0", "GPU7")


# ----------------------------------------------------------------------------- rings


def by_hand(size, links):
    """The most Hamiltonian cycles that share no directed link, by trying all (small sizes only)."""
    cycles = [(0, *rest) for rest in itertools.permutations(range(1, size))]
    steps = [tuple(zip(c, (*c[1:], 0), strict=True)) for c in cycles]

    def most(free, first):
        best = 0
        for k in range(first, len(steps)):
            if all(free.get(step, 0) for step in steps[k]):
                less = dict(free)
                for step in steps[k]:
                    less[step] -= 1
                best = max(best, 1 + most(less, k))
        return best

    return most({pair: n for (a, b), n in links.items() for pair in ((a, b), (b, a))}, 0)


def of_links(size, links):
    devices = [Device(f"GPU{i}", "gpu") for i in range(size)]
    codes = {(f"GPU{a}", f"GPU{b}"): "SYS" for a, b in itertools.combinations(range(size), 2)}
    codes |= {(f"GPU{a}", f"GPU{b}"): f"NV{n}" for (a, b), n in links.items()}
    return build(
        "test", "nvidia-smi", "x", devices, codes, [Bundle(a, b, n) for (a, b), n in links.items()], 25e9, 20e9
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(0, 2), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2)
        )
    )
)
def test_rings_are_as_many_as_an_exhaustive_search_finds(case):
    size, counts = case
    links = {pair: n for pair, n in zip(itertools.combinations(range(size), 2), counts, strict=True) if n}
    found, wanted = rings(of_links(size, links)), by_hand(size, links)
    if wanted:
        assert (found.over, found.count) == ("NVLink", wanted) and found.count <= found.bound
        assert found.busbw == wanted * 20e9
        cycle = zip(found.order, (*found.order[1:], found.order[0]), strict=True)
        assert all(links.get((min(step), max(step))) for step in cycle)
    else:
        assert found.over == "PCIe" and found.count == 1


@pytest.mark.parametrize("size, links", [(3, 2), (5, 1), (5, 3), (8, 1), (7, 2)])
def test_a_full_mesh_gives_every_link_a_ring(size, links):
    mesh = dict.fromkeys(itertools.combinations(range(size), 2), links)
    assert rings(of_links(size, mesh)).count == links * (size - 1)


def test_a_ring_over_pcie_shares_the_way_between_sockets(tmp_path):
    machine = read_topology(
        written(
            tmp_path,
            matrix(
                gpus(4),
                lambda a, b: "NODE" if (a[3] in "01" and b[3] in "01") or (a[3] in "23" and b[3] in "23") else "SYS",
            ),
        )
    )
    assert rings(machine).busbw == pcie_rate(16, 16) == 24e9  # one step in each direction crosses
    alone = read_topology(written(tmp_path, matrix(gpus(1), lambda a, b: "")))
    assert rings(alone).count == 0 and expected_busbw(alone) == 0


def test_the_packaged_cube_mesh_has_one_link_less_than_the_catalogue():
    machine, whole = read(sample("topology-8-v100.txt")), dgx1v()
    counts = {(u, v): round(d["capacity"] / 25e9) for u, v, d in whole.graph.edges(data=True)}
    fabric = machine.fabric()
    found = {tuple(sorted(pair)): round(d["capacity"] / 25e9) for *pair, d in fabric.graph.edges(data=True)}
    less = {pair: counts[pair] - found.get(pair, 0) for pair in counts if counts[pair] != found.get(pair, 0)}
    assert set(found) <= set(counts) and less == {(0, 3): 1}
    assert sorted(machine.links_per_gpu()) == [5, 5, 6, 6, 6, 6, 6, 6]
    order = rings(machine).order
    places = fabric.positions()
    steps = [abs(complex(*places[a]) - complex(*places[b])) for a, b in zip(order, (*order[1:], order[0]), strict=True)]
    assert max(steps) == pytest.approx(min(steps))  # the ring goes round the picture


def test_fabric_of_a_switch_and_of_a_gpu_without_links(tmp_path):
    switched = read_topology(written(tmp_path, matrix(gpus(8), lambda a, b: "NV18"))).fabric()
    assert switched.graph.degree("NVSwitch", weight="capacity") == 8 * 18 * 25e9 and switched.diameter() == 2
    four = read(sample("nccl-topology-4-h100.xml")).fabric()
    assert {d["capacity"] for *_, d in four.graph.edges(data=True)} == {6 * 25e9}
    with pytest.raises(ValueError, match="no NVLink or xGMI link at GPU5"):
        read(sample("topology-gpu-off-nvlink.txt")).fabric()


# ----------------------------------------------------------------------------- rocm-smi


def rocm(count, types, numa="0"):
    def table(title, cell):
        head = "       " + "  ".join(gpus(count))
        rows = [f"{a}  " + "  ".join("0" if a == b else cell(a, b) for b in gpus(count)) for a in gpus(count)]
        return "\n".join([f"===== {title} between two GPUs =====", head, *rows, ""])

    nodes = "\n".join(f"GPU[{i}]\t: (Topology) Numa Node: {numa}" for i in range(count))
    parts = table("Weight", lambda a, b: "15"), table("Hops", lambda a, b: "1"), table("Link Type", types)
    return "\n".join(["===== ROCm System Management Interface =====", *parts, "===== Numa Nodes =====", nodes])


def test_rocm_tables(tmp_path):
    machine = read_topology(written(tmp_path, rocm(4, lambda a, b: "XGMI")))
    assert machine.tool == "rocm-smi" and machine.links_per_gpu() == [3] * 4 and rings(machine).over == "xGMI"
    assert machine.facts_read["Weight"]["GPU2", "GPU3"] == "15"
    pcie = read_topology(written(tmp_path, rocm(2, lambda a, b: "PCIE")))
    assert rings(pcie).over == "PCIe" and pcie.link("GPU0", "GPU1") == "NODE"


def test_rocm_tables_that_do_not_fit_are_refused(tmp_path):
    good = rocm(3, lambda a, b: "XGMI")
    assert '"XXXX" under "Link Type' in refusal(tmp_path, good.replace("XGMI", "XXXX", 1))
    assert "GPU0-GPU1 is PCIE" in refusal(tmp_path, good.replace("GPU0  0  XGMI", "GPU0  0  PCIE"))
    assert "begins a second time" in refusal(tmp_path, good + "\n" + good)
    assert "is missing" in refusal(tmp_path, good.replace("GPU2  1  1  0\n", ""))
    assert "no matrix under" in refusal(tmp_path, good[: good.index("===== Link Type")])


def test_xgmi_pairs_of_greater_weight_are_not_joined_directly(tmp_path):
    # the kernel driver gives 15 to a direct link and more to ways through other GPUs (open-mpi/hwloc, issue 775)
    square = rocm(4, lambda a, b: "XGMI").replace("GPU0  0  15  15  15", "GPU0  0  15  30  15")
    square = square.replace("GPU1  15  0  15  15", "GPU1  15  0  15  30").replace("GPU2  15  15", "GPU2  30  15")
    machine = read_topology(written(tmp_path, square.replace("GPU3  15  15  15  0", "GPU3  15  30  15  0")))
    assert machine.links_per_gpu() == [2] * 4 and machine.pair_counts() == {"XGMI": 6}
    assert machine.fabric().diameter() == 2 and rings(machine).count == 2
    assert any("2 xGMI pairs weigh more" in note for note in machine.notes)


# ----------------------------------------------------------------------------- amd-smi

# The forms below are those of amd-smi in ROCm/amdsmi (docs/how-to/amdsmi-cli-tool.md, CHANGELOG.md): tables of GPUs by
# their PCIe address; a Radeon pair over PCIe prints hops 2, weight 40 and no access; MI355X prints weight 0 everywhere.


def amd(count=4, kind=lambda i, j: "XGMI", hops=lambda i, j: "1", weight=lambda i, j: "15", access="ENABLED", own="0"):
    names = [f"0000:{16 * i + 5:02x}:00.0" for i in range(count)]

    def table(title, diagonal, cell):
        rows = [
            " ".join([a, *((diagonal if i == j else cell(i, j)).ljust(12) for j in range(count))])
            for i, a in enumerate(names)
        ]
        return "\n".join([f"{title} TABLE:", " " * 13 + " ".join(names), *rows])

    parts = [
        table("ACCESS", "ENABLED", lambda i, j: access),
        table("WEIGHT", own, weight),
        table("HOPS", "0", hops),
        table("LINK TYPE", "SELF", kind),
        table("NUMA BW", "N/A", lambda i, j: "0-0"),
        table("CACHE COHERANCY", "SELF", lambda i, j: "C"),
    ]
    return "\n".join([*parts, "", "Legend:", "  SELF = Current GPU", "  <BW from>-<BW to>", ""])


def test_the_packaged_amd_smi_table():
    machine = read(sample("topology-8-mi300x.txt"))
    assert machine.tool == "amd-smi" and machine.pair_counts() == {"XGMI": 28} and machine.links_per_gpu() == [7] * 8
    assert rings(machine).count == 7 and rings(machine).busbw == pytest.approx(7 * 48e9)
    assert nx.is_isomorphic(nx.Graph(machine.fabric().graph), nx.complete_graph(8))


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(2, 8))
def test_any_amd_smi_matrix_comes_back(tmp_path_factory, data, count):
    pairs = list(itertools.combinations(range(count), 2))
    kinds = {pair: data.draw(st.sampled_from(["XGMI", "PCIE-2", "PCIE-3"])) for pair in pairs}

    def of(i, j):
        return kinds[min(i, j), max(i, j)]

    text = amd(count, lambda i, j: of(i, j)[:4], lambda i, j: "1" if of(i, j) == "XGMI" else of(i, j)[-1])
    machine = read(written(tmp_path_factory.mktemp("a"), text))
    wanted = {"XGMI": "XGMI", "PCIE-2": "NODE", "PCIE-3": "SYS"}
    for (i, j), kind in kinds.items():
        assert machine.link(machine.gpus[i].name, machine.gpus[j].name) == wanted[kind]
    assert machine.links_per_gpu() == [sum(of(i, j) == "XGMI" for j in range(count) if j != i) for i in range(count)]


def test_amd_smi_says_what_is_denied_and_what_it_assumes(tmp_path):
    radeons = amd(2, lambda i, j: "PCIE", lambda i, j: "2", lambda i, j: "40", access="DISABLED")
    machine = read(written(tmp_path, radeons))
    assert machine.pair_counts() == {"NODE": 1} and rings(machine).over == "PCIe"
    assert any(note.startswith("no direct access between 0000:05:00.0") for note in machine.notes)
    only_types = amd(2, lambda i, j: "PCIE")[amd(2).index("LINK TYPE") :]
    assert any("without the table of hops" in note for note in read(written(tmp_path, only_types)).notes)
    assert read(written(tmp_path, amd(weight=lambda i, j: "0"))).links_per_gpu() == [3] * 4
    longer = amd(weight=lambda i, j: "30" if (i + j) % 2 == 0 else "15")
    assert read(written(tmp_path, longer)).links_per_gpu() == [2] * 4


def test_amd_smi_tables_that_do_not_fit_are_refused(tmp_path):
    good = amd(3)
    row = "0000:15:00.0 XGMI         SELF         XGMI        "
    assert row in good
    hops = good[good.index("HOPS") : good.index("LINK TYPE")]
    for text, words in (
        (good.replace(row, row.replace("XGMI", "XXXX", 1)), '"XXXX" in "LINK TYPE TABLE:"'),
        (good.replace(row, row.replace("XGMI", "PCIE", 1)), "is XGMI but 0000:15:00.0-0000:05:00.0 is PCIE"),
        (good.replace(row, row + " XGMI"), "has 4 cells, the header 3 GPUs"),
        (good.replace(row, row.replace("SELF", "XGMI")), "SELF on the diagonal is needed"),
        (good.replace(row + "\n", ""), "row 0000:15:00.0 is missing"),
        (good.replace(row, row + "\n" + row), "is given twice"),
        (good.replace(row, row.replace("0000:15", "0000:99")), "is not in the header"),
        (good + good, "begins a second time"),
        (good[: good.index("LINK TYPE")], 'no "LINK TYPE TABLE:"'),
        (good[: good.index(row) + 30], "has 2 cells"),
        (good.replace(hops, hops.replace("0000:05", "0000:06")), "name different GPUs"),
    ):
        assert words in refusal(tmp_path, text)


def test_amd_smi_json_is_refused_by_name(tmp_path):
    link = '{"gpu": 1, "bdf": "0000:15:00.0", "weight": 15, "link_type": "XGMI", "num_hops": 1}'
    text = f'[{{"gpu": 0, "bdf": "0000:05:00.0", "links": [{link}]}}]'
    assert "run it without --json" in refusal(tmp_path, text, "topo.json")


def test_mig_slices_are_left_out_or_refused(tmp_path):
    rows = matrix(gpus(4), lambda a, b: "NV12")
    machine = read(written(tmp_path, rows + "MIG 1g.10gb Device 0\nMIG 1g.10gb Device 1\n"))
    assert machine.pair_counts() == {"NV12": 6}
    assert any(note.startswith("2 rows of MIG slices are left out") for note in machine.notes)
    assert "MIG slices stand among the GPUs" in refusal(
        tmp_path, matrix(["GPU0", "MIG-1g.5gb", "GPU1"], lambda a, b: "SYS")
    )


# ----------------------------------------------------------------------------- XML


SAMPLE = sample("nccl-topology-4-h100.xml").read_text("utf-8")


def test_the_packaged_xml():
    machine = read(sample("nccl-topology-4-h100.xml"))
    assert machine.pair_counts() == {"NV6": 6} and machine.links_per_gpu() == [18] * 4
    assert [one.nics for one in machine.nearest()] == [(f"mlx5_{i}",) for i in range(4)]
    assert rings(machine).busbw == pytest.approx(18 * 20.6e9)
    tree = nx.Graph(machine.graph)
    tree.remove_edges_from(list(itertools.combinations(range(4), 2)))
    assert nx.is_tree(tree) and nx.shortest_path_length(tree, 0, 1) == 4 and nx.shortest_path_length(tree, 0, 2) == 6
    assert (
        tree[0]["pci", "0000:10:00.0"]["capacity"] == 48e9
        and machine.graph["cpu", "0"]["system", 0]["capacity"] == 22e9
    )


def test_xml_switches_are_one_node_and_agree_with_the_catalogue(tmp_path):
    link = "".join(
        f'<nvlink target="0000:f{s}:00.0" count="{n}" tclass="0x068000"/>' for s, n in enumerate((5, 4, 4, 5))
    )
    pci = "".join(
        f'<pci busid="0000:0{g}:00.0" class="0x030200" link_speed="" link_width="0"><gpu sm="90">{link}</gpu></pci>'
        for g in range(8)
    )
    machine = read_xml(written(tmp_path, f'<system version="1"><cpu numaid="0">{pci}</cpu></system>', "t.xml"))
    assert machine.links_per_gpu() == [18] * 8 and machine.switched
    assert expected_busbw(machine) == pytest.approx(MACHINES["H100"].scaleup) and dgx_h100().hosts == machine.hosts


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('count="6"', 'count="0"', 'count "0"'),
        ('count="6"', 'count="-6"', 'count "-6"'),
        ('count="6"', 'count="7"', "7 links from GPU"),
        ('count="6"', 'count="' + "9" * 5000 + '"', "count"),
        ('link_width="16"', 'link_width="x"', 'link_width "x"'),
        ("32.0 GT/s PCIe", "31 GT/s", 'link_speed "31 GT/s"'),
        ("0000:11:00.0", "11:00", "no PCI address"),
        ("0000:12:00.0", "0000:11:00.0", "given twice"),
        ('busid="0000:10:00.0" ', "", "has no busid"),
        ('name="mlx5_0" ', "", "has no name"),
        ("<system", "<graphs", "<graphs>"),
        ("</system>", "", "ends early"),
        ("</cpu>", "</cup>", "not valid XML"),
        ('<cpu numaid="0"', '<!DOCTYPE x><cpu numaid="0"', "not valid XML|DOCTYPE"),
    ],
)
def test_xml_that_is_wrong_is_refused(tmp_path, old, new, words):
    assert old in SAMPLE
    text = SAMPLE.replace(old, new, 1)
    text = text.replace("</system>", "</graphs>") if "graphs" in new else text
    with pytest.raises(ReadError, match=words):
        read_xml(written(tmp_path, text, "t.xml"))


def test_xml_bombs_are_refused_early(tmp_path):
    deep = '<system version="1">' + "<pci>" * 5000
    assert "nested too deeply" in refusal(tmp_path, deep, "t.xml")
    entity = '<!DOCTYPE system [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><system version="&b;"/>'
    assert "DOCTYPE" in refusal(tmp_path, entity, "t.xml")
    bomb = gzip.compress(b'<system version="1">' + b" " * 40_000_000)
    assert "when unpacked" in refusal(tmp_path, bomb, "t.xml")


def test_notes_for_links_to_itself_one_way_or_unknown_elements(tmp_path):
    loop = SAMPLE.replace('target="0000:21:00.0"', 'target="0000:11:00.0"', 1).replace(
        "</cpu>", "<pcie_gen9/></cpu>", 1
    )
    machine = read_xml(written(tmp_path, loop, "t.xml"))
    words = " ".join(machine.notes)
    assert "to itself" in words and "no way back" in words and "pcie_gen9" in words


def test_the_door_refuses_an_unknown_kind_and_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="kind is 'topo'; one of config, topology"):
        read("x", kind="topo")
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ReadError, match=r"cannot be opened|is a folder"):
            read(path)
    assert "Known kinds" in refusal(tmp_path, "hello\n") and "empty" in refusal(tmp_path, "\n\n")
    assert "HTML" in refusal(tmp_path, "<html><body>404</body></html>")
    assert set(readers.__all__) <= set(dir(readers)) and issubclass(ReadError, ValueError)
