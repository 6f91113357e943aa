"""Topologies against published tables, networkx and scipy searches, flows, and brute force over all cuts."""

import csv
import itertools
import math
import random
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from distgen_lab import topology as module
from distgen_lab.alphabeta import Link
from distgen_lab.hardware import ACCELERATORS
from distgen_lab.topology import (
    Facts,
    Topology,
    against_the_book,
    binary_tree,
    compare,
    complete,
    crossbar,
    dgx1v,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    folded_clos,
    from_graph,
    gb200_nvl72,
    hypercube,
    leaf_spine,
    line,
    mesh,
    moore_bound,
    ring,
    superpod,
    superpod_counts,
    torus,
    tpu_v4,
    tpu_v5p,
    wagner,
)

PUBLISHED = {
    "ring N=8": lambda: ring(8),
    "ring N=16": lambda: ring(16),
    "ring N=64": lambda: ring(64),
    "path/chain N=16": lambda: line(16),
    "2D torus 4x4": lambda: torus((4, 4)),
    "2D torus 8x8": lambda: torus((8, 8)),
    "2D mesh 4x4": lambda: mesh((4, 4)),
    "3D torus 4x4x4": lambda: torus((4, 4, 4)),
    "hypercube d=3": lambda: hypercube(3),
    "hypercube d=4": lambda: hypercube(4),
    "hypercube d=6": lambda: hypercube(6),
    "complete K8 (fully connected)": lambda: complete(8),
    "star (crossbar switch) 8 hosts": lambda: crossbar(8),
    "balanced binary tree depth 3 (15)": lambda: binary_tree(3),
    "fat-tree k=4 (Al-Fares)": lambda: fat_tree(4),
    "fat-tree k=8 (Al-Fares)": lambda: fat_tree(8),
    "dragonfly a=2 p=1 h=1 terminals": lambda: dragonfly(2, 1, 1),
    "dragonfly a=2 h=1 routers only": lambda: dragonfly(2, 0, 1),
    "dragonfly a=4 p=2 h=2 terminals": lambda: dragonfly(4, 2, 2),
    "dragonfly a=4 h=2 routers only": lambda: dragonfly(4, 0, 2),
    "DGX-1V hybrid cube mesh (NVLink wts)": dgx1v,
    "DGX A100: 8 GPU x 6 NVSwitch": dgx_a100,
    "DGX H100: 8 GPU x 4 NVSwitch": dgx_h100,
}

FAMILIES = {
    **{f"line {n}": (lambda n=n: line(n)) for n in (1, 2, 3, 7, 12, 30)},
    **{f"ring {n}": (lambda n=n: ring(n)) for n in (1, 2, 3, 4, 5, 13, 24, 100)},
    **{
        f"mesh {dims}": (lambda dims=dims: mesh(dims))
        for dims in ((5,), (3, 4), (5, 5), (6, 4), (3, 3, 3), (4, 2, 5), (1, 6), (2, 2, 2, 2), (4, 8, 2))
    },
    **{
        f"torus {dims}": (lambda dims=dims: torus(dims))
        for dims in (
            (6,),
            (3, 4),
            (5, 5),
            (6, 4),
            (2, 2),
            (3, 2),
            (3, 3, 3),
            (4, 2, 5),
            (1, 6),
            (4, 4, 4, 4),
            (8, 2, 3),
        )
    },
    **{f"hypercube {d}": (lambda d=d: hypercube(d)) for d in (0, 1, 2, 5, 7, 9)},
    **{f"complete {n}": (lambda n=n: complete(n)) for n in (1, 2, 5, 9, 40)},
    **{f"crossbar {n}": (lambda n=n: crossbar(n)) for n in (1, 2, 7, 64)},
    **{f"tree {depth}": (lambda depth=depth: binary_tree(depth)) for depth in (0, 1, 2, 5, 7)},
    **{
        f"fat-tree {k}/{r}": (lambda k=k, r=r: fat_tree(k, r))
        for k, r in ((2, 1), (4, 1), (4, 2), (6, 1), (6, 3), (8, 2), (8, 4), (10, 1), (12, 3), (16, 1))
    },
    **{
        f"leaf-spine {size}": (lambda size=size: leaf_spine(*size))
        for size in ((8, 8, 8), (8, 8, 2), (1, 4, 2), (2, 1, 1), (3, 4, 4), (4, 3, 2, 4), (6, 5, 3, 6), (30, 20, 10))
    },
    **{f"folded Clos {k}/{r}": (lambda k=k, r=r: folded_clos(k, r)) for k, r in ((2, 1), (8, 1), (8, 2), (24, 3))},
    **{
        f"dragonfly {size}": (lambda size=size: dragonfly(*size))
        for size in (
            *(
                (1, 1, 1),
                (1, 2, 3),
                (2, 1, 1),
                (3, 2, 2),
                (4, 0, 2),
                (5, 2, 2),
                (4, 2, 2, 5),
                (4, 2, 2, 1),
                (3, 1, 2, 4),
            ),
            *((4, 2, 2, 9, "absolute"), (5, 2, 2, 6, "absolute")),
        )
    },
    "NVL72": gb200_nvl72,
    "H100 as one": lambda: dgx_h100(merged=True),
    "SuperPOD": lambda: superpod("H100", 1),
}


def distances(topology):
    """Hops between all hosts, by scipy."""
    order = [*range(topology.hosts), *(node for node in topology.graph if not isinstance(node, int))]
    matrix = nx.to_scipy_sparse_array(topology.graph, nodelist=order, weight=None)
    return dijkstra(matrix, unweighted=True, indices=range(topology.hosts))[:, : topology.hosts]


def flow_width(topology, half, weight="links"):
    """The smallest cut between these hosts and the others, by networkx."""
    graph = nx.Graph(topology.graph)
    for host in range(topology.hosts):
        graph.add_edge("in" if host in half else "out", host)  # without a capacity: endless
    flow = nx.DiGraph(graph)
    return nx.maximum_flow_value(flow, "in", "out", capacity=weight)


def brute_width(topology, weight="links"):
    """The narrowest cut of all placements of all nodes, in equal halves of the hosts."""
    nodes = list(topology.graph)
    best = math.inf
    for side in itertools.product((False, True), repeat=len(nodes)):
        chosen = dict(zip(nodes, side, strict=True))
        if sum(chosen[host] for host in range(topology.hosts)) == topology.hosts // 2:
            edges = topology.graph.edges(data=weight)
            best = min(best, sum(w for u, v, w in edges if chosen[u] != chosen[v]))
    return best


def check_certificate(topology, cut):
    """The cut is what it says: equal halves, exactly the crossing edges, and nothing else joins the sides."""
    inside, outside = cut.halves
    assert sorted(inside + outside) == list(range(topology.hosts))
    assert len(inside) == topology.hosts // 2 and set(inside) == {n for n in cut.side if n in range(topology.hosts)}
    crossing = {frozenset(e) for e in topology.graph.edges if (e[0] in cut.side) != (e[1] in cut.side)}
    assert {frozenset((u, v)) for u, v, _ in cut.cut} == crossing
    assert all(u in cut.side and topology.graph[u][v]["links"] == links for u, v, links in cut.cut)
    assert sum(links for _, _, links in cut.cut) == cut.width >= cut.lower_bound
    capacity = sum(topology.graph[u][v]["capacity"] for u, v, _ in cut.cut)
    assert cut.bandwidth == pytest.approx(capacity)


# ----------------------------------------------------------------------------- published tables


def test_every_row_of_the_published_table(shared):
    with open(shared / "data" / "topology_facts.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["instance"] for row in rows} == set(PUBLISHED)
    for row in rows:
        topology = PUBLISHED[row["instance"]]()
        counted = {
            "vertices": len(topology.graph), "end_nodes": topology.hosts, "edges": topology.graph.number_of_edges(),
            "links_weighted": topology.cables, "min_degree": topology.degrees()[0], "max_degree": topology.degree(),
            "diameter_between_ends": topology.diameter(), "bisection_width_links": topology.bisection_width(),
        }  # fmt: skip
        assert {name: int(row[name]) for name in counted} == counted, row["instance"]
        assert topology.average_distance() == Fraction(row["avg_distance_exact"]), row["instance"]
        assert topology.bisection().proven, row["instance"]
        check_certificate(topology, topology.bisection())
        if row["spectral_lower_bound"]:
            cuts = module._Cuts(topology, [links for _, _, links in topology.graph.edges(data="links")])
            given_bound = float(row["spectral_lower_bound"])
            if topology.hosts % 2 == 0:  # the table's lambda N / 4; for odd N ours is lambda (N^2 - 1) / 4N
                assert module._spectral_bound(cuts) == pytest.approx(given_bound, abs=1e-4), row["instance"]


def test_every_row_of_the_superpod_table(shared):
    with open(shared / "data" / "superpod_counts.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11
    for row in rows:
        counts = superpod_counts(row["system"], int(row["scalable_units"]))
        for name in set(row) - {"system", "source"}:
            assert getattr(counts, name) == int(row[name]), (row["system"], row["scalable_units"], name)


@pytest.mark.parametrize(
    ("system", "units"),
    [("H100", 1), ("H100", 3), ("B200", 2), ("B200", 8), ("B200", 16), ("B200", 32), ("B300", 1), ("B300", 4)],
)
def test_a_superpod_is_built_as_counted(system, units):
    pod, counts = superpod(system, units), superpod_counts(system, units)
    kinds = Counter(kind(node) for node in pod.graph)
    want = {"host": counts.gpus, "leaf": counts.leaf_switches, "spine": counts.spine_switches}
    assert kinds == want | ({"core": counts.core_switches} if counts.core_switches else {})
    cables, ports = Counter(), Counter()
    for u, v, links in pod.graph.edges(data="links"):
        cables[frozenset((kind(u), kind(v)))] += links
        ports.update({u: links, v: links})
    assert cables[frozenset(("host", "leaf"))] == counts.node_leaf_cables
    assert cables[frozenset(("leaf", "spine"))] == counts.leaf_spine_cables
    assert cables[frozenset(("spine", "core"))] == counts.spine_core_cables
    assert {ports[node] for node in pod.graph if isinstance(node, int)} == {1}
    assert all(ports[node] <= 64 for node in pod.graph)
    assert pod.diameter() == (6 if counts.core_switches else 4)
    assert pod.bisection().proven and pod.bisection_width() == counts.gpus // 2  # non-blocking
    assert pod.route(0, 8)[1] == ("leaf", 0) and len(pod.route(0, 8)) == 3  # the same rail of the next node


def test_h100_counts_of_the_reference_architecture():
    """NVIDIA's H100 document: 1 to 4 units have 8, 16, 24, 32 leaves and 4, 8, 16, 16 spines."""
    counts = [superpod_counts("H100", units) for units in (1, 2, 3, 4)]
    assert [c.leaf_switches for c in counts] == [8, 16, 24, 32]
    assert [c.spine_switches for c in counts] == [4, 8, 16, 16]
    assert [c.leaf_spine_cables for c in counts] == [256, 512, 768, 1024]


# ----------------------------------------------------------------------------- closed forms against the graph


@pytest.mark.parametrize("name", FAMILIES)
def test_closed_forms_hold_on_the_graph(name):
    topology = FAMILIES[name]()
    hops = distances(topology)
    n = topology.hosts
    assert topology.diameter() == hops.max()
    assert topology.average_distance() == Fraction(int(hops.sum()), max(1, n * (n - 1)))
    assert topology.distance_counts() == np.bincount(hops.astype(int).ravel()).tolist()
    assert topology.closed_form.differences(topology.facts()) == []
    assert topology.cables == sum(links for _, _, links in topology.graph.edges(data="links"))
    assert topology.closed_form.switches == len(topology.graph) - n
    if topology.closed_form.bisection is not None:
        assert topology.bisection().proven and topology.bisection_width() == topology.closed_form.bisection
    check_certificate(topology, topology.bisection())


SMALL = [name for name in FAMILIES if 2 <= FAMILIES[name]().hosts <= 150]  # flows in pure Python take long


@pytest.mark.parametrize("name", SMALL)
def test_no_halves_are_narrower_than_the_proved_bound(name):
    topology = FAMILIES[name]()
    draw, hosts = random.Random(7), list(range(topology.hosts))
    halves = [topology.bisection().halves[0], hosts[: topology.hosts // 2]]
    halves += [draw.sample(hosts, topology.hosts // 2) for _ in range(2)]
    widths = [flow_width(topology, set(half)) for half in halves]
    assert min(widths) >= topology.bisection().lower_bound
    assert widths[0] == topology.bisection_width()  # the switches are placed best


def test_differences_names_what_differs():
    assert Facts(4, 0, 4, 2, 2).differences(Facts(4, 0, 5, 2, 3, Fraction(1), 7)) == ["cables", "diameter"]


# ----------------------------------------------------------------------------- bisection


def small_networks():
    """Connected networks of up to 7 hosts and 3 switches, with parallel links."""
    return st.tuples(st.integers(2, 7), st.integers(0, 3), st.randoms(use_true_random=False)).map(random_network)


def random_network(drawn):
    hosts, switches, rng = drawn
    nodes = list(range(hosts + switches))
    rng.shuffle(nodes)
    edges = [(node, rng.choice(nodes[:i])) for i, node in enumerate(nodes) if i]
    edges += [rng.sample(nodes, 2) for _ in range(rng.randrange(8))]
    graph = nx.Graph()
    graph.add_nodes_from(range(hosts))
    for u, v in edges:
        graph.add_edge(u, v, links=rng.randint(1, 3))
    return from_graph(graph, list(range(hosts)))


@settings(max_examples=40, deadline=None)
@given(small_networks())
def test_bisection_of_small_networks_is_that_of_brute_force(topology):
    truth = brute_width(topology)
    cut = topology.bisection()
    check_certificate(topology, cut)
    assert cut.lower_bound == truth == cut.width


@settings(max_examples=40, deadline=None)
@given(small_networks())
def test_bounds_and_exchanges_bracket_the_truth(topology):
    """Without trying all cuts: the computed bounds never exceed the truth, and the search finds it."""
    cuts = module._Cuts(topology, [links for _, _, links in topology.graph.edges(data="links")])
    truth = brute_width(topology)
    for bound, method in module._computed_bounds(cuts):
        assert bound <= truth, method
    assert truth == min(cuts.weight(side) for side in module._tries(cuts)) or topology.switches


@pytest.mark.parametrize(
    "build",
    [
        lambda: torus((3, 3)), lambda: torus((3, 4)), lambda: mesh((3, 3)), lambda: hypercube(3), lambda: complete(7),
        lambda: ring(9), lambda: binary_tree(2), dgx1v, wagner, lambda: crossbar(7), lambda: leaf_spine(3, 2, 2),
        lambda: leaf_spine(2, 3, 1), lambda: dragonfly(2, 1, 1), lambda: dragonfly(3, 0, 1), lambda: fat_tree(2),
        lambda: dragonfly(2, 0, 2, 5, "absolute"), lambda: leaf_spine(3, 3, 1, 2),
    ],
)  # fmt: skip
def test_bisection_of_small_families_is_that_of_brute_force(build):
    assert build().bisection_width() == brute_width(build()) and build().bisection().proven


@pytest.mark.parametrize(
    "build",
    [
        lambda: torus((4, 4)), lambda: torus((8, 4)), lambda: hypercube(5), lambda: complete(12), lambda: fat_tree(4),
        lambda: fat_tree(8), lambda: fat_tree(8, 2), lambda: leaf_spine(8, 8, 2), gb200_nvl72, dgx_h100,
    ],
)  # fmt: skip
def test_routing_all_pairs_proves_what_the_family_claims(build):
    """The same graph without its family: the bound is computed from the graph alone."""
    family = build()
    bare = Topology("bare", family.graph, family.hosts)
    cuts = module._Cuts(bare, [links for _, _, links in bare.graph.edges(data="links")])
    bounds = [bound for bound, _ in module._computed_bounds(cuts)]
    assert max(bounds) == family.bisection_width()


def test_exchanges_find_the_cut_of_a_dragonfly():
    family = dragonfly(4, 2, 2)
    bare = Topology("bare", family.graph, family.hosts)
    assert bare.bisection_width() == 20
    assert bare.bisection().lower_bound < 20 and not bare.bisection().proven
    assert str(bare.bisection()) == f"{bare.bisection().lower_bound} to 20"


@pytest.mark.parametrize(("a", "p", "h"), [(2, 1, 1), (2, 0, 1), (3, 0, 1), (2, 0, 2), (3, 1, 1), (2, 3, 1)])
def test_counting_groups_never_exceeds_the_truth(a, p, h):
    for arrangement in ("palmtree", "absolute"):
        topology = dragonfly(a, p, h, arrangement=arrangement)
        ((bound, _),) = module._dragonfly_bounds(a, p, h, a * h + 1)
        bare = Topology("bare", topology.graph, topology.hosts)
        assert bare.bisection().proven and bound <= bare.bisection_width()  # all cuts tried


def test_large_networks_get_bounds():
    cut = dragonfly(6, 3, 3).bisection()
    assert 0 < cut.lower_bound <= cut.width <= 90  # 9 whole groups on either side and one split: 9 * 9 + 3 * 3
    assert torus((16, 16, 16)).bisection_width() == 512 and fat_tree(16).bisection_width() == 512
    regular = from_graph(nx.random_regular_graph(4, 450, seed=3))
    assert 1 < regular.bisection().lower_bound < regular.bisection_width() < 225  # a random half cuts about 450


@pytest.mark.slow
def test_a_thousand_hosts_get_bounds():
    cut = dragonfly(8, 4, 4).bisection()
    assert 0 < cut.lower_bound <= cut.width <= 272  # 16 * 16 + 4 * 4
    check_certificate(dragonfly(8, 4, 4), cut)
    assert from_graph(nx.random_regular_graph(4, 1024, seed=3)).bisection_width() < 512


def test_bisection_bandwidth():
    assert ring(8).bisection_bandwidth() == pytest.approx(2 * 12.5e9)
    assert torus((4, 4), Link(1e-6, 1 / 50e9)).bisection_bandwidth() == pytest.approx(8 * 50e9)
    assert fat_tree(8, 4).bisection_bandwidth() == pytest.approx(128 * 12.5e9 / 2 / 4)  # P b / 2r
    assert complete(4, Link(0, 0)).bisection_bandwidth() == math.inf
    assert line(1).bisection_bandwidth() == 0 and line(1).bisection_width() == 0


def test_bandwidth_of_unequal_cables_is_the_least_capacity_not_the_fewest_cables():
    """A square of two thick and two thin pairs: two thin cables side by side carry less than one thick."""
    graph = nx.Graph()
    graph.add_edge(0, 1, capacity=100e9, links=1)
    graph.add_edge(2, 3, capacity=100e9, links=1)
    graph.add_edge(0, 2, capacity=1e9, links=2)
    graph.add_edge(1, 3, capacity=2e9, links=2)
    topology = from_graph(graph)
    assert topology.bisection_width() == brute_width(topology) == 2
    assert topology.bisection_bandwidth() == brute_width(topology, "capacity") == 3e9
    graph[0][1]["capacity"] = math.inf
    assert from_graph(graph).bisection_bandwidth() == 3e9


# ----------------------------------------------------------------------------- routes

ROUTED = [name for name in FAMILIES if "(4, 4, 4, 4)" not in name]


@pytest.mark.parametrize("name", ROUTED)
def test_routes_are_shortest_paths_and_always_the_same(name):
    topology, again = FAMILIES[name](), FAMILIES[name]()
    hops, draw = distances(topology), random.Random(1)
    pairs = [(draw.randrange(topology.hosts), draw.randrange(topology.hosts)) for _ in range(120)]
    for source, target in [*pairs, (0, 0)]:
        path = topology.route(source, target)
        assert path[0] == source and path[-1] == target and len(path) == hops[source, target] + 1
        assert all(topology.graph.has_edge(u, v) for u, v in itertools.pairwise(path))
        assert again.route(source, target) == path


@pytest.mark.parametrize(
    "build", [lambda: superpod("B200", 16), lambda: superpod("B300", 2), lambda: superpod("H100", 3), dgx_a100, dgx1v]
)
def test_routes_of_machines_are_shortest_paths(build):
    topology, draw = build(), random.Random(2)
    for _ in range(60):
        source, target = draw.randrange(topology.hosts), draw.randrange(topology.hosts)
        path = topology.route(source, target)
        assert len(path) - 1 == nx.shortest_path_length(topology.graph, source, target)
        assert nx.is_path(topology.graph, path)


def kind(node):
    """What a node is: "host", or the kind of switch."""
    return node[0] if isinstance(node, tuple) else "host"


def loads(topology, pairs):
    """Messages on each directed link."""
    return Counter(hop for s, t in pairs for hop in itertools.pairwise(topology.route(s, t)))


def test_dimension_order_and_its_ties():
    grid = torus((4, 6))  # host = 6 * row + column
    assert grid.route(0, 6 * 2 + 3) == [0, 6, 12, 13, 14, 15]  # rows first, both ties in the positive direction
    assert grid.route(0, 5) == [0, 5] and grid.route(0, 18) == [0, 18]  # the short way round
    assert mesh((4, 6)).route(0, 5) == [0, 1, 2, 3, 4, 5]
    assert ring(8).route(6, 2) == [6, 7, 0, 1, 2] and ring(8).route(6, 1) == [6, 7, 0, 1]
    assert line(5).route(4, 1) == [4, 3, 2, 1]


def test_e_cube_corrects_the_lowest_bit_first():
    assert hypercube(4).route(0b0101, 0b1110) == [0b0101, 0b0100, 0b0110, 0b1110]


def test_the_target_chooses_the_way_up():
    assert leaf_spine(8, 8, 8).route(0, 13) == [0, ("leaf", 0), ("spine", 5), ("leaf", 1), 13]
    top = [("aggregation", 0, 1), ("core", 1, 1), ("aggregation", 2, 1)]
    assert fat_tree(4).route(0, 11) == [0, ("edge", 0, 0), *top, ("edge", 2, 1), 11]
    assert fat_tree(4).route(0, 3) == [0, ("edge", 0, 0), ("aggregation", 0, 1), ("edge", 0, 1), 3]


def test_trees_go_up_and_down():
    assert binary_tree(3).route(7, 10) == [7, 3, 1, 4, 10]
    assert binary_tree(3).route(0, 14) == [0, 2, 6, 14] and binary_tree(3).route(9, 1) == [9, 4, 1]


@pytest.mark.parametrize("build", [lambda: fat_tree(4), lambda: fat_tree(6), lambda: leaf_spine(8, 8, 8)])
def test_shifts_meet_no_contention_with_destination_routing(build):
    """Every shift i -> i + s uses each directed link at most once (Zahavi 2010), so no ring step shares a link."""
    topology = build()
    n = topology.hosts
    for shift in range(1, n):
        assert max(loads(topology, [(host, (host + shift) % n) for host in range(n)]).values()) == 1


@pytest.mark.parametrize("build", [lambda: fat_tree(4), lambda: leaf_spine(4, 6, 3), lambda: superpod("H100", 1)])
def test_all_to_all_loads_links_of_a_level_alike(build):
    topology = build()
    n = topology.hosts
    by_level = {}
    for (u, v), load in loads(topology, itertools.permutations(range(n), 2)).items():
        by_level.setdefault((kind(u), kind(v)), []).append(load)
    for level, found in by_level.items():
        ends = [e for u, v in topology.graph.edges for e in ((u, v), (v, u))]
        joined = sum((kind(u), kind(v)) == level for u, v in ends)
        assert len(found) == joined and max(found) == min(found), level


def test_a_large_superpod_spreads_over_all_its_core_switches():
    pod = superpod("B200", 16)
    draw = random.Random(5)
    pairs = [(draw.randrange(pod.hosts), draw.randrange(pod.hosts)) for _ in range(20000)]
    used = Counter(node for s, t in pairs for node in pod.route(s, t) if node not in (s, t) and node[0] == "core")
    assert len(used) == 64 and max(used.values()) < 1.5 * min(used.values())


def test_oversubscribed_neighbours_share_the_uplinks():
    """8 x 8 hosts on two uplinks a leaf: far halves of an exchange send 8 messages over 2 uplinks."""
    tree = leaf_spine(8, 8, 2)
    far = loads(tree, [(host, host ^ 32) for host in range(64)])
    assert far[("leaf", 0), ("spine", 0)] == far[("leaf", 0), ("spine", 1)] == 4
    assert max(loads(tree, [(host, (host + 1) % 64) for host in range(64)]).values()) == 1


def test_own_networks_take_the_lowest_node_or_spread():
    graph = nx.complete_bipartite_graph([0, 1, 2, 3], ["p", "q"])
    lowest, spread = (from_graph(graph, [0, 1, 2, 3], spread=choice) for choice in (False, True))
    assert lowest.route(0, 3) == [0, ("switch", "p"), 3] and spread.route(0, 3) == [0, ("switch", "q"), 3]
    assert spread.route(0, 2) == [0, ("switch", "p"), 2] and "mod" in spread.routing and "lowest" in lowest.routing
    square = from_graph(nx.cycle_graph(4))
    assert square.route(0, 2) == [0, 1, 2] and square.route(3, 1) == [3, 0, 1]


def test_a_route_outside_the_hosts_is_refused():
    with pytest.raises(ValueError, match="hosts are 0 to 7"):
        crossbar(8).route(0, 8)
    with pytest.raises(ValueError, match="no route from -1"):
        ring(8).route(-1, 3)
    with pytest.raises(TypeError):
        ring(8).route(0.5, 3)
    assert all(type(node) is int for node in ring(8).route(np.int64(1), np.int64(3)))


# ----------------------------------------------------------------------------- links


def test_each_cable_has_the_latency_and_bandwidth_of_the_link():
    link = Link(2e-6, 1 / 25e9)
    tree = leaf_spine(4, 4, 2, 4, link=link)
    assert tree.graph[0]["leaf", 0] == {"capacity": 25e9, "latency": 2e-6, "links": 1}
    assert tree.graph["leaf", 0]["spine", 1] == {"capacity": 50e9, "latency": 2e-6, "links": 2}
    assert {data["capacity"] for _, _, data in torus((4, 4)).graph.edges(data=True)} == {12.5e9}


def test_a_message_through_a_crossbar_costs_the_link():
    link = Link(3e-6, 1 / 12.5e9)
    star = crossbar(64, link)
    path = [star.graph[u][v] for u, v in itertools.pairwise(star.route(3, 60))]
    assert sum(edge["latency"] for edge in path) + 5e6 / min(edge["capacity"] for edge in path) == pytest.approx(
        link.time(5e6), rel=1e-12
    )


# ----------------------------------------------------------------------------- dragonfly


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(0, 2), st.integers(1, 3), st.sampled_from(["palmtree", "absolute"]), st.data())
def test_global_links_join_all_groups_alike(a, p, h, arrangement, data):
    groups = data.draw(st.integers(2, a * h + 1))
    topology = dragonfly(a, p, h, groups, arrangement)
    router = {node: node[1] * a + node[2] if p else node for node in topology.graph if isinstance(node, tuple) or not p}
    between, at = Counter(), Counter()
    for u, v, links in topology.graph.edges(data="links"):
        if u in router and v in router and router[u] // a != router[v] // a:
            between[frozenset((router[u] // a, router[v] // a))] += links
            at.update({u: links, v: links})
    assert len(between) == groups * (groups - 1) // 2 and set(between.values()) == {a * h // (groups - 1)}
    assert max(at.values()) <= h and (groups <= a * h or set(at.values()) == {h})
    assert topology.diameter() <= (5 if p else 3)


def test_distances_depend_on_the_arrangement():
    assert dragonfly(4, 2, 2).average_distance() == Fraction(306, 71)
    assert dragonfly(4, 2, 2, arrangement="absolute").average_distance() == Fraction(920, 213)


# ----------------------------------------------------------------------------- machines


def test_what_a_gpu_can_send_is_the_data_sheets_figure(shared):
    with open(shared / "data" / "accelerators.csv", newline="", encoding="utf-8") as file:
        sheet = {row["accelerator"].split("-")[0]: row for row in csv.DictReader(file)}
    machines = {"V100": dgx1v(), "A100": dgx_a100(), "H100": dgx_h100(), "TPU v4": tpu_v4((4, 4, 4))}
    machines |= {"A100 ": dgx_a100(merged=True), "TPU v5p": tpu_v5p((4, 4, 8))}
    for name, machine in machines.items():
        want = float(
            next(row for key, row in sheet.items() if key.startswith(name.strip()))["scaleup_per_direction_GBps"]
        )
        for host in range(machine.hosts):
            assert sum(machine.graph[host][v]["capacity"] for v in machine.graph[host]) / 1e9 == pytest.approx(want)


def test_bandwidth_of_machines():
    assert dgx_h100().bisection_bandwidth() == pytest.approx(1.8e12)  # 3.6 TB/s both ways, as printed
    assert dgx_a100().bisection_bandwidth() == pytest.approx(1.2e12)
    assert gb200_nvl72().bisection_bandwidth() == pytest.approx(36 * ACCELERATORS["GB200"].scaleup)
    pod = tpu_v4()
    assert (pod.hosts, pod.name) == (4096, "TPU v4 16x16x16")
    assert pod.bisection_bandwidth() == pytest.approx(25.6e12)  # Google prints 24 TB/s
    assert tpu_v5p().hosts == 8960 and superpod("B300", 1).bisection_bandwidth() == pytest.approx(256 * 100e9)


def test_switches_as_one_carry_the_same():
    for build in (dgx_a100, dgx_h100, gb200_nvl72):
        apart, one = build(), build(merged=True)
        assert (one.switches, one.cables, one.hosts) == (1, apart.cables, apart.hosts)
        assert one.bisection_width() == apart.bisection_width()


def test_the_cube_mesh_is_three_regular_quads():
    """Each V100 has six NVLinks; two quads, joined by six."""
    box = dgx1v()
    assert {sum(box.graph[gpu][v]["links"] for v in box.graph[gpu]) for gpu in range(8)} == {6}
    assert set(box.bisection().halves) == {(0, 1, 2, 3), (4, 5, 6, 7)} and len(box.bisection().cut) == 4


# ----------------------------------------------------------------------------- own networks


def test_own_network_keeps_names_and_adds_up_parallel_edges():
    graph = nx.MultiGraph()
    graph.add_edge("a", "hub", capacity=10e9)
    graph.add_edge("a", "hub", capacity=20e9, latency=5e-6, links=2)
    graph.add_edge("b", "hub")
    topology = from_graph(graph, ["b", "a"], name="two", link=Link(1e-6, 2.0**-30))
    assert repr(topology) == "two: 2 hosts, 1 switch, 4 cables"
    assert topology.graph[1]["switch", "hub"] == {"capacity": 30e9, "latency": 5e-6, "links": 3}
    assert topology.graph[0]["switch", "hub"] == {"capacity": 2.0**30, "latency": 1e-6, "links": 1}
    assert [topology.graph.nodes[node]["label"] for node in (0, 1, ("switch", "hub"))] == ["b", "a", "hub"]
    assert from_graph(nx.Graph([(("tor", 1), "x")]), ["x"]).switches == 1
    assert from_graph(nx.petersen_graph()).diameter() == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ring(0), "n is 0; a whole number of at least 1"),
        (lambda: line(-3), "n is -3"),
        (lambda: ring(2.5), "n is 2.5"),
        (lambda: ring(True), "n is True"),
        (lambda: crossbar(0), "n is 0"),
        (lambda: complete("8"), "n is '8'"),
        (lambda: hypercube(-1), "dimension is -1"),
        (lambda: binary_tree(-1), "depth is -1"),
        (lambda: torus(()), "dims is ()"),
        (lambda: torus(4), "dims is 4"),
        (lambda: mesh((4, 0)), "dims[1] is 0"),
        (lambda: fat_tree(5), "k is 5; an even number"),
        (lambda: fat_tree(0), "k is 0"),
        (lambda: fat_tree(8, 3), "oversubscription is 3; a divisor of k/2 = 4"),
        (lambda: fat_tree(8, 0), "oversubscription is 0"),
        (lambda: folded_clos(7), "k is 7"),
        (lambda: leaf_spine(0, 8), "leaves is 0"),
        (lambda: leaf_spine(8, 0), "hosts_per_leaf is 0"),
        (lambda: leaf_spine(8, 8, oversubscription=3), "oversubscription is 3; a divisor of hosts_per_leaf = 8"),
        (lambda: leaf_spine(8, 8, spines=3, uplinks=8), "uplinks is 8; a multiple of the 3 spines"),
        (lambda: leaf_spine(8, 8, spines=2, oversubscription=4), "leave it out"),
        (lambda: leaf_spine(8, 8, spines=0), "spines is 0"),
        (lambda: leaf_spine(8, 8, uplinks=0), "uplinks is 0"),
        (lambda: dragonfly(0, 1, 1), "a is 0"),
        (lambda: dragonfly(4, -1, 2), "p is -1"),
        (lambda: dragonfly(4, 2, 0), "h is 0"),
        (lambda: dragonfly(4, 2, 2, groups=10), "groups is 10; at most a h + 1 = 9"),
        (lambda: dragonfly(4, 2, 2, arrangement="oak"), "arrangement is 'oak'; there are: palmtree, absolute"),
        (lambda: superpod_counts("A100", 1), "system is 'A100'; there are: H100, B200, B300"),
        (lambda: superpod_counts("B200", 12), "scalable_units is 12; B200 has 1 to 8, or 16, 32"),
        (lambda: superpod_counts("B300", 32), "scalable_units is 32; B300 has 1 to 16"),
        (lambda: superpod("B300", 8), "scalable_units is 8; at most 4 of B300"),
        (lambda: from_graph(nx.Graph([(0, 1), (2, 3)])), "own network is not connected: 2 parts"),
        (lambda: from_graph(nx.DiGraph([(0, 1)])), "graph is directed"),
        (lambda: from_graph(nx.Graph()), "hosts is []"),
        (lambda: from_graph(nx.path_graph(3), [0, 7]), "hosts is [0, 7]"),
        (lambda: from_graph(nx.path_graph(3), [0, 0]), "hosts is [0, 0]"),
        (lambda: from_graph(nx.Graph([(0, 0), (0, 1)])), "edge (0, 0) joins a node to itself"),
        (lambda: from_graph(nx.Graph([(0, 1, {"capacity": 0})])), "edge (0, 1): capacity is 0"),
        (lambda: from_graph(nx.Graph([(0, 1, {"capacity": "fast"})])), "capacity is 'fast'"),
        (lambda: from_graph(nx.Graph([(0, 1, {"latency": -1e-6})])), "edge (0, 1): latency is -1e-06"),
        (lambda: from_graph(nx.Graph([(0, 1, {"links": 0})])), "edge (0, 1): links is 0"),
        (lambda: Topology("t", nx.path_graph(2), 2), "edge (0, 1): links is None"),
        (lambda: Topology("t", nx.path_graph(2), 3), "hosts is 3"),
        (lambda: Topology("t", nx.MultiGraph([(0, 1)]), 2), "graph is a MultiGraph"),
        (lambda: compare(), "at least one topology"),
        (lambda: against_the_book(wagner()), "family is 'wagner'"),
        (lambda: against_the_book(torus((4, 8))), "dims is (4, 8)"),
        (lambda: moore_bound(0, 2), "degree is 0"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError) as caught:
        call()
    assert words in str(caught.value)


# ----------------------------------------------------------------------------- tables and pictures


def test_comparison_prints_and_draws():
    bare = Topology("bare", dragonfly(4, 2, 2).graph, 72)
    table = compare(torus((4, 4)), crossbar(2048), bare)
    html = table._repr_html_()
    assert html.count("<tr>") == 4 and "8 (proved)" in html and "2,048" in html and "100 GB/s" in html
    assert repr(table).splitlines()[1].split("  ")[0] == "2D torus 4x4" and " to 20" in repr(table)


def test_the_books_fat_tree():
    rows = {row.quantity: row for row in against_the_book(fat_tree(8)).rows}
    assert [(rows[f"{kind} switches"].book, rows[f"{kind} switches"].computed) for kind in ("edge", "core")] == [
        (16, 32), (16, 16)
    ]  # fmt: skip
    assert rows["diameter"].book == pytest.approx(9) and rows["diameter"].computed == 6
    assert (rows["bisection"].book, rows["bisection"].computed) == (128, 64)
    assert rows["hosts"].agrees and rows["bisection, r:1"].agrees and not rows["edge switches"].agrees


@pytest.mark.parametrize(
    ("build", "wrong"),
    [
        (lambda: ring(9), []),
        (lambda: torus((8, 8)), []),
        (lambda: torus((4, 4, 4)), []),
        (lambda: torus((3, 3)), ["bisection"]),
        (lambda: torus((2, 2)), ["bisection"]),
        (lambda: hypercube(3), ["least diameter for the degree"]),
        (lambda: hypercube(2), []),
        (lambda: dragonfly(4, 0, 2), []),
        (lambda: dragonfly(4, 2, 2), ["diameter"]),
        (dgx_a100, ["bisection (B/s)"]),
    ],
)
def test_the_books_other_formulas(build, wrong):
    table = against_the_book(build())
    assert [row.quantity for row in table.rows if not row.agrees] == wrong
    assert all(row.right for row in table.rows if not row.agrees)
    assert table._repr_html_().count("<tr>") == len(table.rows) + 1 and table.name in repr(table)


def test_the_hypercube_is_not_the_shortest_for_its_degree():
    graph = wagner()
    assert graph.degrees() == (3, 3) == hypercube(3).degrees() and graph.hosts == hypercube(3).hosts
    assert graph.diameter() == 2 < hypercube(3).diameter()
    assert nx.is_isomorphic(graph.graph, nx.circulant_graph(8, [1, 4]))
    assert moore_bound(3, 2) == len(nx.petersen_graph()) and moore_bound(7, 2) == len(nx.hoffman_singleton_graph())
    assert moore_bound(2, 3) == 7 and moore_bound(1, 4) == 2


@pytest.mark.parametrize("name", [*FAMILIES, *PUBLISHED])
def test_every_node_has_a_place_of_its_own(name):
    topology = (FAMILIES | PUBLISHED)[name]()
    places = topology.positions()
    assert set(places) == set(topology.graph)
    assert len({(round(x, 6), round(y, 6)) for x, y in places.values()}) == len(places)
    assert all(type(x) is float and type(y) is float and math.isfinite(x + y) for x, y in places.values())


def test_places_of_own_networks():
    springs = from_graph(nx.petersen_graph())
    assert set(springs.positions()) == set(range(10)) and springs.positions() == springs.positions()
    star = from_graph(nx.star_graph(5), [1, 2, 3, 4, 5])
    assert star.positions()["switch", 0][1] > max(star.positions()[host][1] for host in range(5))
    assert set(wagner().positions()) == set(range(8))
    assert len(from_graph(nx.path_graph(2)).positions()) == 2


def test_a_tree_puts_hosts_at_the_bottom():
    for topology in (fat_tree(4), leaf_spine(4, 4), dgx_h100()):
        places = topology.positions()
        assert len({places[host][1] for host in range(topology.hosts)}) == 1
        assert min(y for node, (_, y) in places.items() if not isinstance(node, int)) > places[0][1]
    tree = fat_tree(4).positions()
    assert tree["edge", 0, 0][1] < tree["aggregation", 0, 0][1] < tree["core", 0, 0][1]


def test_it_brings_in_nothing_heavy():
    code = "import sys, distgen_lab.topology as t; t.compare(t.ring(4), t.fat_tree(4))._repr_html_();"
    code += "print([m for m in ('torch', 'ipywidgets', 'mpi4py', 'matplotlib', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
