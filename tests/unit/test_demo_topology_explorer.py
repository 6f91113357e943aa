"""The topology explorer: pure data, a picture that keeps its size, words that hold the numbers."""

import inspect
import struct
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import demos
from distgen_lab.demos.panel import Panel, picture
from distgen_lab.demos.topology_explorer import ALGORITHMS, FAMILIES, NBYTES, VIEWS, _heaviest, data, draw, words

SIZE = (8.6, 3.9)


def size(png):
    """Width and height from the header of a PNG."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and png[12:16] == b"IHDR"
    return struct.unpack(">II", png[16:24])


def controls(shown):
    """The controls by the name of the argument they set."""
    return dict(zip(inspect.signature(data).parameters, shown.children[0].children, strict=True))


def shown(family="2D torus", number=2, show="all-reduce", source=0, target=10, algorithm="ring", round_number=0):
    return data(family, number, show, source, target, algorithm, round_number)


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_grow_and_stop_at_the_largest(family):
    sizes = FAMILIES[family][1]
    hosts = [shown(family, number).network.hosts for number in range(1, len(sizes) + 1)]
    assert hosts == sorted(set(hosts)) and hosts[-1] <= 144
    assert shown(family, 99).network is shown(family, len(sizes)).network
    assert shown(family, 0).network is shown(family, 1).network


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("show", VIEWS)
def test_every_family_is_drawn_in_every_view(family, show):
    view = shown(family, 1, show, algorithm="halving, far first")
    png = picture(lambda figure: draw(figure, view), SIZE)
    assert size(png) == (860, 390) and len(png) < 100_000
    assert view.network.name in words(view)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.integers(1, 4), st.integers(0, 63), st.integers(0, 63))
def test_the_path_is_a_shortest_one(family, number, source, target):
    view = shown(family, number, "shortest path", source, target)
    graph, hosts = view.network.graph, view.network.hosts
    assert (view.path[0], view.path[-1]) == (source % hosts, target % hosts)
    assert all(graph.has_edge(*step) for step in pairwise(view.path))
    assert len(view.path) - 1 == nx.shortest_path_length(graph, source % hosts, target % hosts)
    assert words(view) == words(shown(family, number, "shortest path", source, target))


def test_a_round_beyond_the_last_is_the_last():
    view = shown(round_number=999)
    assert view.number == len(view.price.rounds) - 1 == 2 * 15 - 1


def test_the_all_reduce_is_the_one_asked_for_and_is_right():
    for algorithm in ALGORITHMS:
        priced = shown(algorithm=algorithm).price
        assert priced.nbytes == NBYTES and priced.schedule.collective == "all_reduce" and priced.schedule.verify()
    near, far = (shown("ring", 4, algorithm=f"halving, {order} first").price.seconds for order in ("near", "far"))
    assert far > 7 * near


def test_the_words_hold_the_numbers():
    said = words(shown(show="bisection cut"))
    assert "8 of 32 cables" in said and "100 GB/s in one direction" in said and "Proved" in said
    said = words(shown(show="shortest path"))
    assert "4 hops from 0 to 10 (0 - 4 - 8 - 9 - 10)" in said and "diameter 4, 2.13 hops" in said
    said = words(shown("ring", 2))
    assert "round 0 (of 30) takes 321 us" in said and "carries 4 MB" in said and "All rounds together: 9.63 ms" in said


def test_one_hop_is_singular():
    assert "1 hop from 0 to 1 (" in words(shown(show="shortest path", target=1))


def test_a_cut_that_is_not_proved_says_so():
    said = words(shown("3D torus", 2, "bisection cut"))
    cut = shown("3D torus", 2).network.bisection()
    assert not cut.proven and "Proved" not in said
    assert f"{cut.width} of 81 cables" in said and f"At least {cut.lower_bound} are needed" in said


def test_all_rounds_share_one_scale_of_colours():
    for family, algorithm in (("2D torus", "halving, far first"), ("DGX-1V", "ring"), ("fat-tree", "ring")):
        view = shown(family, 2, algorithm=algorithm)
        rounds = range(len(view.price.rounds))
        every = max(max(view.price.round_loads(number).values()) for number in rounds)
        assert _heaviest(view.network, algorithm) == every


@pytest.mark.parametrize("name", ["family", "show", "algorithm"])
def test_what_is_not_on_offer_is_named(name):
    given_values = {"family": "ring", "size": 1, "show": "all-reduce", "source": 0, "target": 1, "algorithm": "ring"}
    with pytest.raises(ValueError, match=f"{name} is 'nothing'; there are: "):
        data(**given_values | {"number": 0, name: "nothing"})


def test_the_panel_follows_its_controls_and_keeps_its_size():
    panel = demos.topology_explorer()
    assert isinstance(panel, Panel)
    handles, seen = controls(panel), []
    changes = [("show", "all-reduce"), ("algorithm", "halving, far first"), ("number", 3), ("family", "fat-tree"),
               ("show", "shortest path"), ("target", 1), ("source", 2), ("size", 1)]  # fmt: skip
    for name, value in changes:
        handles[name].value = value
        seen.append(panel.image.value)
        assert panel.caption.value == words(data(**{name: handle.value for name, handle in handles.items()}))
    assert all(one != other for one, other in pairwise(seen))
    assert {size(png) for png in seen} == {(860, 390)}
