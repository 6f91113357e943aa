"""Prices against closed forms, a published fluid simulator, and a few lines of plain Python that share no code."""

import csv
import math
import re
from collections import defaultdict
from fractions import Fraction
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distgen_lab import collectives as coll
from distgen_lab import simulate, topology
from distgen_lab.alphabeta import Link
from distgen_lab.collectives import ALGORITHMS, Schedule
from distgen_lab.simulate import price, timeline

LINK = Link(1e-6, 1 / 12.5e9)
NBYTES = 2**26


def alike(graph):
    """The graph with the same capacity and latency on every edge."""
    for _, _, facts in graph.edges(data=True):
        facts.update(capacity=1e9, latency=1e-6, links=1)
    return graph


def own_network(graph, hosts, name="own"):
    """Something with the shape of a topology: shortest paths, found anew each time."""
    return SimpleNamespace(name=name, graph=graph, hosts=hosts, route=lambda a, b: nx.shortest_path(graph, a, b))


def plain_price(schedule, network, nbytes, gamma=0.0, hosts=None):
    """Seconds and bytes on each link, one transfer after the other."""
    hosts = hosts or list(range(schedule.ranks))
    chunk = nbytes / schedule.parts
    seconds, total = 0.0, defaultdict(float)
    for item in schedule.rounds():
        loads, latencies, added = defaultdict(float), [0.0], defaultdict(float)
        for source, target, reduce in zip(
            item.source.tolist(), item.target.tolist(), item.reduce.tolist(), strict=True
        ):
            path = network.route(hosts[source], hosts[target])
            edges = [(path[i], path[i + 1]) for i in range(len(path) - 1)]
            latencies.append(sum(network.graph.edges[edge]["latency"] for edge in edges))
            for edge in edges:
                loads[edge] += chunk
            added[target] += chunk * reduce
        drains = [load / network.graph.edges[edge]["capacity"] for edge, load in loads.items()]
        seconds += max(latencies) + max(drains, default=0.0) + gamma * max(added.values(), default=0.0)
        for edge, load in loads.items():
            total[edge] += load
    return seconds, total


@st.composite
def networks(draw, hosts):
    """A random connected network with switches, every link different."""
    switches = draw(st.integers(1, 4))
    nodes = [*range(hosts), *(("switch", i) for i in range(switches))]
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    for place, node in enumerate(nodes[1:], start=1):
        graph.add_edge(node, nodes[draw(st.integers(0, place - 1))])
    for _ in range(draw(st.integers(0, 6))):
        pair = draw(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)))
        if pair[0] != pair[1]:
            graph.add_edge(*pair)
    for _, _, facts in graph.edges(data=True):
        facts.update(capacity=draw(st.floats(1e8, 1e11)), latency=draw(st.floats(0, 1e-5)), links=1)
    return own_network(graph, hosts)


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 8), st.floats(0, 1e9), st.floats(0, 1e-9))
def test_any_schedule_on_any_network_costs_what_plain_counting_gives(data, name, ranks, nbytes, gamma):
    assume(ALGORITHMS[name].takes(ranks))
    hosts = ranks + data.draw(st.integers(0, 2))
    network = data.draw(networks(hosts))
    placement = data.draw(st.permutations(range(hosts)))[:ranks]
    schedule = ALGORITHMS[name](ranks)
    priced = price(schedule, network, nbytes, gamma, placement)
    seconds, loads = plain_price(schedule, network, nbytes, gamma, placement)
    assert priced.seconds == pytest.approx(seconds, rel=1e-12)
    assert priced.seconds == pytest.approx(priced.rounds.sum(), rel=1e-12)
    assert len(priced.rounds) == len(list(schedule.rounds()))
    assert {edge: load for edge, load in priced.loads.items() if load} == pytest.approx(
        {edge: load for edge, load in loads.items() if load}, rel=1e-12
    )
    other = price(schedule, network, nbytes / 3, gamma, placement)
    assert priced.at(nbytes / 3).seconds == pytest.approx(other.seconds, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(ALGORITHMS)), st.integers(2, 8))
def test_loads_of_the_rounds_add_up_and_leave_the_hosts_as_counted(data, name, ranks):
    assume(ALGORITHMS[name].takes(ranks))
    network = data.draw(networks(ranks))
    schedule = ALGORITHMS[name](ranks)
    priced = price(schedule, network, 1e6)
    summed = defaultdict(float)
    for number in range(len(priced.rounds)):
        for edge, load in priced.round_loads(number).items():
            summed[edge] += load
    assert dict(summed) == pytest.approx(priced.loads)
    star = price(schedule, topology.crossbar(ranks, LINK), 1e6)
    for row in schedule.traffic().rows:
        hub = ("switch", 0)
        assert star.loads.get((row.rank, hub), 0) == pytest.approx(float(row.sent) * 1e6)
        assert star.loads.get((hub, row.rank), 0) == pytest.approx(float(row.received) * 1e6)


# ----------------------------------------------------------------------------------- closed forms


@pytest.fixture(scope="module")
def formulas(shared):
    with open(shared / "data" / "collective_formulas.csv", encoding="utf-8", newline="") as file:
        return {(row["collective"], row["algorithm"]): row for row in csv.DictReader(file)}


def value_of(text, p):
    spelt = re.sub(r"(\d)([(Lp])", r"\1*\2", text).replace("/", "*Fraction(1)/")
    return eval(spelt, {"Fraction": Fraction}, {"L": math.ceil(math.log2(p)), "p": p})


ROWS = {
    ("bcast", "binomial / minimum spanning tree"): "binomial_broadcast",
    ("bcast", "scatter + recursive-doubling allgather"): "scatter_doubling_broadcast",
    ("bcast", "scatter + ring allgather (van de Geijn)"): "scatter_ring_broadcast",
    ("reduce", "binomial"): "binomial_reduce",
    ("reduce", "Rabenseifner: reduce-scatter (halving) + binomial gather"): "rabenseifner_reduce",
    ("scatter/gather", "binomial (LOWER BOUND met)"): "binomial_gather",
    ("allgather", "ring"): "ring_all_gather",
    ("allgather", "recursive doubling"): "recursive_doubling_all_gather",
    ("allgather", "Bruck"): "bruck_all_gather",
    ("reduce_scatter", "ring / pairwise"): "ring_reduce_scatter",
    ("reduce_scatter", "recursive halving"): "recursive_halving_reduce_scatter",
    ("allreduce", "recursive doubling (butterfly)"): "recursive_doubling_all_reduce",
    ("allreduce", "Rabenseifner (recursive halving + doubling)"): "rabenseifner_all_reduce",
    ("allreduce", "ring"): "ring_all_reduce",
    ("allreduce", "tree: binomial reduce + bcast"): "binomial_all_reduce",
    ("alltoall", "pairwise exchange"): "pairwise_all_to_all",
    ("alltoall", "Bruck"): "bruck_all_to_all",
}


@pytest.mark.parametrize(("row", "name"), ROWS.items())
@pytest.mark.parametrize("ranks", [2, 4, 16, 64])
def test_a_crossbar_costs_the_closed_form(formulas, row, name, ranks):
    alpha, beta, gamma = (value_of(formulas[row][f"{what}_coeff"], ranks) for what in ("alpha", "n_beta", "n_gamma"))
    for link in (LINK, Link(3e-6, 0), Link(0, 1 / 450e9)):
        for nbytes in (0, 1, 4096, NBYTES):
            expected = float(alpha) * link.alpha + nbytes * (float(beta) * link.beta + float(gamma) * 1e-11)
            if link.beta:
                priced = price(ALGORITHMS[name](ranks), topology.crossbar(ranks, link), nbytes, gamma=1e-11)
                assert priced.seconds == pytest.approx(expected, rel=1e-12)


def model_of_two_trees(ranks, segments, nbytes, link):
    """2 (h + m - 1) rounds of n/m bytes, h = log2 P: the model behind the published sizes."""
    return 2 * (math.log2(ranks) + segments - 1) * (link.alpha + nbytes * link.beta / segments)


@pytest.mark.parametrize("segments", [1, 3, 20])
@pytest.mark.parametrize("ranks", [4, 8, 64, 256])
def test_two_trees_cost_their_model_but_for_the_roots(ranks, segments):
    """A root has one child, so the last round up and the first one down are half full: n/m bytes less in all."""
    link, nbytes = Link(1e-6, 1 / 25e9), 1e6
    priced = price(coll.double_tree_all_reduce(ranks, segments), topology.crossbar(ranks, link), nbytes)
    expected = model_of_two_trees(ranks, segments, nbytes, link) - nbytes / segments * link.beta
    assert priced.seconds == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("ranks", "nbytes"), [(8, 67e3), (64, 3.9e6), (256, 51e6)])
def test_two_trees_meet_the_ring_near_where_published(ranks, nbytes):
    """Sizes at 1 us and 25 GB/s, from the audit of the chapter; within a few per cent the schedules agree."""
    star = topology.crossbar(ranks, Link(1e-6, 1 / 25e9))
    ideal = round(math.sqrt((math.log2(ranks) - 1) * nbytes / 25e9 * 1e6))
    for times, faster in ((1 / 1.5, True), (1.5, False)):
        trees = min(price(coll.double_tree_all_reduce(ranks, m), star, times * nbytes).seconds
                    for m in range(max(1, round(0.7 * ideal)), round(1.3 * ideal) + 2))  # fmt: skip
        assert (trees < price(coll.ring_all_reduce(ranks), star, times * nbytes).seconds) == faster


# ----------------------------------------------------------------------------------- a fluid simulator


def flat_then_broadcast(ranks):
    return coll.flat_reduce(ranks).then(coll.binomial_broadcast(ranks), "flat reduce + broadcast", "all_reduce")


def far_halving_then_direct(ranks):
    halving = coll.recursive_halving_reduce_scatter(ranks, near_first=False)
    return halving.then(coll.direct_all_gather(ranks), "far-first halving + direct all-gather", "all_reduce")


ALGORITHM_OF = {
    "ring": coll.ring_all_reduce,
    "ring (synchronous rounds); wall 0.16-0.88 s over repeats": coll.ring_all_reduce,
    "ring(lr)": coll.ring_all_reduce,
    "rabenseifner(rab)": coll.rabenseifner_all_reduce,
    "rabenseifner (its allreduce_recdoub)": coll.rabenseifner_all_reduce,
    "recursive doubling(rdb)": coll.recursive_doubling_all_reduce,
    "flat reduce + binomial bcast(redbcast)": flat_then_broadcast,
    "rab1: far-first halving + linear allgather": far_halving_then_direct,
}
QUARTER = Link(0.25e-6, 1 / 12.5e9)  # 1 us end to end over the four cables between two leaves
TOPOLOGY_OF = {
    "star 64, 0.5us up + 0.5us down": lambda: topology.crossbar(64, LINK),
    "star 64": lambda: topology.crossbar(64, LINK),
    "star 8": lambda: topology.crossbar(8, LINK),
    "star 1024": lambda: topology.crossbar(1024, LINK),
    "LogP": lambda: topology.crossbar(64, LINK),
    "torus 64 (ring)": lambda: topology.ring(64, LINK),
    "ring 64": lambda: topology.ring(64, LINK),
    "torus 8x8": lambda: topology.torus((8, 8), LINK),
    "torus 8x8, row-major ring": lambda: topology.torus((8, 8), LINK),
    "torus 4x4x4": lambda: topology.torus((4, 4, 4), LINK),
    "fat-tree 8 leaves x 8 hosts, 8 uplinks": lambda: topology.leaf_spine(8, 8, spines=8, link=QUARTER),
    "fat-tree 8x8, 2 uplinks (4:1)": lambda: topology.leaf_spine(8, 8, spines=2, link=QUARTER),
}


def golden(shared):
    with open(shared / "data" / "simulator_golden.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_prices_are_those_of_a_fluid_simulator(shared):
    """All rows without protocol effects but one, whose messages do not run in rounds."""
    rows = [row for row in golden(shared) if re.search("S4U|ideal|LogGOPSim", row["simulator"])]
    rows = [row for row in rows if not row["algorithm"].startswith("rab2")]
    assert len(rows) == 20
    for row in rows:
        schedule = ALGORITHM_OF[row["algorithm"]](int(row["n_ranks"]))
        assert schedule.verify() or schedule.ranks > 64
        seconds = price(schedule, TOPOLOGY_OF[row["topology"]](), float(row["bytes"])).seconds
        assert seconds * 1e6 == pytest.approx(float(row["simulated_us"]), rel=0.001), row


def test_rounds_are_what_misses_a_simulation_without_a_barrier(shared):
    """A direct exchange at once is a lower, pairwise rounds with barriers an upper bound of overlapping rounds."""
    row = next(row for row in golden(shared) if row["algorithm"].startswith("rab2"))
    ring = TOPOLOGY_OF[row["topology"]]()
    gathered = price(coll.direct_all_gather(64), ring, NBYTES).seconds
    low, high = (price(ALGORITHMS[name](64), ring, NBYTES).seconds + gathered
                 for name in ("direct_all_to_all", "pairwise_all_to_all"))  # fmt: skip
    assert low < float(row["simulated_us"]) / 1e6 < high


def test_the_order_of_partners_matters_on_a_ring():
    near, far = (price(coll.rabenseifner_all_reduce(64, first), topology.ring(64, LINK), NBYTES).seconds
                 for first in (True, False))  # fmt: skip
    assert near == pytest.approx(32.34e-3, rel=1e-3) and far == pytest.approx(229.1e-3, rel=1e-3)


def test_a_ring_of_ranks_can_follow_the_torus():
    """Row-major, two hops at each turn of a row; back and forth through the rows, none."""
    torus, rows = topology.torus((8, 8), LINK), np.arange(64).reshape(8, 8)
    rows[1::2] = rows[1::2, ::-1]
    straight = price(coll.ring_all_reduce(64), torus, NBYTES)
    snake = price(coll.ring_all_reduce(64).mapped(rows.ravel()), torus, NBYTES)
    placed = price(coll.ring_all_reduce(64), torus, NBYTES, placement=rows.ravel())
    best = price(coll.ring_all_reduce(64), topology.ring(64, LINK), NBYTES)
    assert straight.seconds - best.seconds == pytest.approx(126e-6)
    assert snake.seconds == placed.seconds == best.seconds


def test_four_thousand_ranks():
    torus = topology.torus((16, 16, 16), LINK)
    ring = price(coll.ring_all_reduce(4096), torus, NBYTES)
    assert len(ring.rounds) == 8190
    by_axis = price(coll.torus_all_reduce((16, 16, 16)), torus, NBYTES)
    assert by_axis.seconds == pytest.approx(90e-6 + 2 * 4095 / 4096 * NBYTES / 12.5e9, rel=1e-12)
    assert ring.loads[0, 1] == by_axis.schedule.traffic().rows[0].sent * NBYTES


# ----------------------------------------------------------------------------------- timelines


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 9))
def test_the_timeline_sends_what_the_schedule_counts(name, ranks):
    assume(ALGORITHMS[name].takes(ranks))
    schedule = ALGORITHMS[name](ranks)
    nbytes = 12 * schedule.parts
    spans = timeline(schedule, topology.crossbar(ranks, LINK), nbytes)
    assert spans.traffic() == schedule.traffic(nbytes).recorded()
    assert spans.seconds == pytest.approx(price(schedule, topology.crossbar(ranks, LINK), nbytes).seconds)


def test_spans_begin_and_end_with_their_round():
    schedule, ring = coll.rabenseifner_all_reduce(8), topology.ring(8, LINK)
    priced, spans = price(schedule, ring, 1e6, gamma=1e-10), timeline(schedule, ring, 1e6, gamma=1e-10)
    begins = np.r_[0, np.cumsum(priced.rounds)]
    assert {span.tag for span in spans.spans} == set(range(6))
    for span in spans.spans:
        assert span.start == begins[span.tag] and span.end <= begins[span.tag + 1] * (1 + 1e-12)
        twin = [s for s in spans.on(span.peer) if (s.tag, s.peer) == (span.tag, span.lane) and s.op != span.op]
        assert [(s.start, s.end, s.nbytes) for s in twin] == [(span.start, span.end, span.nbytes)]


def test_a_message_on_an_idle_route_ends_before_its_round():
    rounds = [[(0, 1, 0, "copy"), (0, 2, 0, "copy"), (3, 4, 1, "copy")]]
    schedule = Schedule.from_transfers("all_reduce", 5, rounds, parts=2)
    spans = timeline(schedule, own_network(alike(nx.path_graph(5)), 5), 2e6).spans
    ends = {(span.lane, span.peer): span.end for span in spans if span.op == "send"}
    assert ends == pytest.approx({(0, 1): 2e-3 + 1e-6, (0, 2): 2e-3 + 2e-6, (3, 4): 1e-3 + 1e-6})


# ----------------------------------------------------------------------------------- words


def test_a_price_prints_in_a_terminal_and_in_a_notebook():
    priced = price(coll.ring_all_reduce(64), topology.ring(64, LINK), NBYTES)
    for text in ("ring all-reduce, 67.11 MB", "10.696 ms", "126", "latency: 1.2% of the time", "busiest link: "):
        assert text in repr(priced)
    assert "barrier" in priced.assumptions and "barrier" in priced._repr_html_()
    assert priced.busiest in priced.loads and len(priced.loads) == 64
    nothing = price(coll.ring_all_reduce(1), topology.crossbar(1, LINK), 5)
    assert nothing.seconds == 0 and nothing.busiest is None and "busiest link: none" in repr(nothing)


def parted():
    return own_network(alike(nx.Graph([(0, 1), (2, 3)])), 4, "two islands")


RING, STAR = coll.ring_all_reduce(4), topology.crossbar(4, LINK)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: price(RING, topology.crossbar(3, LINK), 1), "ranks is 4, but crossbar of 3 has 3 hosts"),
    (lambda: price(RING, parted(), 1), "'two islands' has no path from host 1 to host 2"),
    (lambda: price(RING, STAR, -1), "nbytes is -1"), (lambda: price(RING, STAR, math.nan), "nbytes is nan"),
    (lambda: price(RING, STAR, math.inf), "nbytes is inf"), (lambda: price(RING, STAR, 1, -1e-9), "gamma is -1e-09"),
    (lambda: price(RING, STAR, 1).at(-5), "nbytes is -5"),
    (lambda: price(RING, STAR, 1).round_loads(6), "number is 6; a round from 0 to 5"),
    (lambda: price(RING, STAR, 1, placement=[0, 1, 2]), "placement names 3 hosts; one for each of the 4"),
    (lambda: price(RING, STAR, 1, placement=[0, 1, 2, 2]), "placement names host 2"),
    (lambda: price(RING, STAR, 1, placement=[0, 1, 2, 4]), "placement names host 4"),
    (lambda: price(RING, STAR, 1, placement=[0, 1, 2, 0.5]), "placement is 0.5"),
    (lambda: price(Schedule.from_transfers("broadcast", 4, [[(0, 9, 0, "copy")]]), STAR, 1), "round 0 names rank 9"),
    (lambda: timeline(coll.pairwise_all_to_all(300), topology.crossbar(300, LINK), 1), "more than 100000 spans"),
])  # fmt: skip
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_public_names():
    assert simulate.__all__ == ["Price", "price", "timeline"]
    assert "barrier" in simulate.__doc__
