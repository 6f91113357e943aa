"""NCCL's rings and bandwidths: disjointness by counting, logs as printed, forecasts against measurements."""

import csv
from collections import Counter
from itertools import permutations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import nccl_forecast, nccl_recorded
from distgen_lab.gpu_cluster import NODE_NAMES, PATH, cluster, edge_disjoint_rings, rail_rings, ring_order
from distgen_lab.readers import read_log
from distgen_lab.simulate import price
from distgen_lab.topology import complete, dgx1v, from_graph

# ------------------------------------------------------------------ rings


def steps(ring):
    return list(zip(ring, ring[1:] + ring[:1], strict=True))


def brute_force(graph, hosts):
    """The most directed rings that fit, by trying every set: for few hosts."""
    rings = [
        (hosts[0], *rest)
        for rest in permutations(hosts[1:])
        if all(graph.has_edge(u, v) for u, v in steps((hosts[0], *rest)))
    ]

    def fits(free, first):
        best = 0
        for k in range(first, len(rings)):
            left = free - Counter(steps(rings[k]))
            if sum(left.values()) == sum(free.values()) - len(hosts):
                best = max(best, 1 + fits(left, k))
        return best

    free = Counter()
    for u, v, links in graph.edges(data="links"):
        free[u, v] = free[v, u] = links
    return fits(free, 0)


@given(st.integers(3, 5), st.data())
@settings(max_examples=40, deadline=None)
def test_as_many_rings_as_brute_force_finds(hosts, data):
    graph = nx.path_graph(hosts)  # connected, whatever comes on top
    pairs = data.draw(st.lists(st.sampled_from([(u, v) for u in range(hosts) for v in range(u)]), max_size=8))
    graph.add_edges_from(pairs)
    for u, v in graph.edges:
        graph.edges[u, v]["links"] = data.draw(st.integers(1, 2))
    topology = from_graph(graph)
    found = edge_disjoint_rings(topology, range(hosts))
    assert len(found) == brute_force(topology.graph, tuple(range(hosts)))


@pytest.mark.parametrize(("gpus", "count"), [(2, 1), (3, 2), (4, 4), (5, 0), (6, 2), (7, 4), (8, 6)])
def test_rings_of_the_cube_mesh_pass_all_gpus_on_links_of_their_own(gpus, count):
    topology = dgx1v()
    found = edge_disjoint_rings(topology, range(gpus))
    assert len(found) == count
    used = Counter(step for ring in found for step in steps(ring))
    assert all(used[u, v] <= topology.graph.edges[u, v]["links"] for u, v in used)
    assert all(sorted(ring) == list(range(gpus)) for ring in found)


def test_undirected_rings_use_a_link_up():
    assert len(edge_disjoint_rings(dgx1v(), range(8), directed=False)) == 3
    assert len(edge_disjoint_rings(complete(5), range(5), directed=False)) == 2  # K5 splits into two rings (Walecki)
    assert len(edge_disjoint_rings(complete(5), range(5))) == 4


def test_bad_input_of_rings():
    with pytest.raises(ValueError, match="a ring needs two or more"):
        edge_disjoint_rings(dgx1v(), [3])
    with pytest.raises(ValueError, match="unknown node 'DGX-2'"):
        rail_rings(2, "DGX-2")
    with pytest.raises(ValueError, match="nodes is 3"):
        rail_rings(3)
    with pytest.raises(ValueError, match="unknown node"):
        cluster("DGX-2")
    with pytest.raises(ValueError, match="nodes is 0"):
        cluster(nodes=0)


@pytest.mark.parametrize("node", NODE_NAMES)
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_rail_rings_add_up_and_load_every_port_alike(node, nodes):
    schedule, topology = rail_rings(nodes, node), cluster(node, nodes)
    assert schedule.verify()
    priced = price(schedule, topology, 1.0)
    rails = [load for (u, v), load in priced.loads.items() if isinstance(v, tuple) and v[0] == "rail"]
    assert len(rails) == (0 if nodes == 1 else nodes * {"DGX-1V": 4}.get(node, 8))
    ranks, ports = 8 * nodes, 4 if node == "DGX-1V" else 8
    assert all(load == pytest.approx(2 * (ranks - 1) / ranks / ports) for load in rails)


def test_a_flat_ring_walks_on_links_only():
    assert all(dgx1v().graph.has_edge(u, v) for u, v in steps(PATH))
    assert sorted(ring_order("DGX-1V", 3)) == list(range(24)) == ring_order("DGX A100", 3)


def test_a_cluster_has_the_bandwidth_of_its_data_sheet():
    for node, out in (("DGX-1V", 4 * 12.5e9), ("DGX A100", 8 * 25e9), ("DGX H100", 8 * 50e9)):
        graph = cluster(node, 2).graph
        ports = [facts["capacity"] for u, v, facts in graph.edges(data=True) if ("rail" in (u[0], v[0]) if
                 isinstance(u, tuple) and isinstance(v, tuple) else False)]  # fmt: skip
        assert sum(ports) == pytest.approx(2 * out)


# ------------------------------------------------------------------ logs


def test_the_example_is_what_was_measured(shared):
    (run,) = read_log(nccl_recorded.example())
    rows = {int(r["bytes"]): r for r in csv.DictReader((shared / "data" / "nccl_measured.csv").open())
            if r["dataset"] == "aws_1xp5_batch" and r["placement"] == "out"}  # fmt: skip
    own = [row for row in run.rows if row.place == "out"]
    assert (len(own), run.ranks, run.wrong) == (32, 8, 0)
    for row in own:
        assert row.seconds * 1e6 == pytest.approx(float(rows[row.nbytes]["time_us"]))
        assert row.busbw / 1e9 == pytest.approx(float(rows[row.nbytes]["busbw_GBps"]), abs=0.006)
    assert run.peak.busbw / run.peak.algbw == pytest.approx(2 * 7 / 8, rel=1e-4)


def test_bad_names_of_recorded_runs():
    with pytest.raises(ValueError, match="no recorded run is called 'TPU'"):
        nccl_recorded.recorded("TPU")
    with pytest.raises(ValueError, match="there are: H200, B200"):
        nccl_recorded.switch_sums("A100")
    with pytest.raises(ValueError, match="3 bytes were not measured"):
        nccl_recorded.recorded("A100").at(3)


@pytest.mark.parametrize(
    ("name", "dataset", "placement"),
    [("A100", "stas_1xa100", "out"), ("H100", "aws_1xp5_batch", "out"), ("2 x A100", "aws_2xp4de", "out"),
     ("2 x H100", "aws_2xp5", "out"), ("H200", "stas_1xh200", "in"), ("B200", "stas_1xb200", "in")],
)  # fmt: skip
def test_recorded_runs_are_the_published_ones(shared, name, dataset, placement):
    sweep = nccl_recorded.recorded(name)
    rows = [r for r in csv.DictReader((shared / "data" / "nccl_measured.csv").open())
            if r["dataset"] == dataset and r["placement"] == placement]  # fmt: skip
    assert list(sweep.bytes) == [int(r["bytes"]) for r in rows]
    for row, busbw in zip(rows, sweep.busbw, strict=True):
        assert busbw / 1e9 == pytest.approx(float(row["busbw_GBps"]), rel=0.005, abs=0.006)


# ------------------------------------------------------------------ forecasts


def test_rings_times_one_link_is_within_six_per_cent_of_a_dgx_1v():
    rows = [row for row in nccl_forecast.forecasts() if row.machine.startswith("DGX-1V,")]
    assert [row.machine for row in rows] == [f"DGX-1V, {p} GPUs" for p in (3, 4, 6, 7, 8)]
    assert max(abs(row.error) for row in rows) < 0.06


def test_forecasts_of_nodes_are_within_seven_per_cent_and_of_clusters_within_fifteen():
    rows = [row for row in nccl_forecast.forecasts() if not row.bound]
    inside = [row for row in rows if " x " not in row.machine]
    assert len(inside) >= 15
    assert max(abs(row.error) for row in inside) < 0.07
    assert max(abs(row.error) for row in rows) < 0.15
    assert all(row.predicted > row.measured for row in nccl_forecast.forecasts() if row.bound)


def test_sums_in_the_switch_pass_the_line_rate():
    assert nccl_forecast.switch_busbw("H100", 8) > 450e9
    assert nccl_forecast.switch_busbw("H100", 4) < 450e9
    with pytest.raises(ValueError, match="gpu is 'A100'"):
        nccl_forecast.switch_busbw("A100", 8)


def test_the_table_is_one_row_a_forecast():
    table = nccl_forecast.table()
    assert len(repr(table).splitlines()) == len(table.rows) == table._repr_html_().count("<tr>") - 1
