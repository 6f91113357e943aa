"""Pictures of networks: what is drawn is what was given, read back from the axes; distances against networkx."""

from collections import Counter
from io import BytesIO

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from distgen_lab import plots, topology
from distgen_lab.collectives import rabenseifner_all_reduce, ring_all_reduce
from distgen_lab.plots import PALETTE
from distgen_lab.simulate import price

NETWORKS = [
    topology.line(16), topology.ring(12), topology.torus((4, 4)), topology.torus((4, 4, 4)), topology.hypercube(5),
    topology.fat_tree(4, 2), topology.dragonfly(4, 2, 2), topology.dgx1v(), topology.dgx_a100(),
    topology.superpod("H100", 1), topology.crossbar(1),
]  # fmt: skip


@pytest.fixture
def ax():
    return Figure(figsize=(5, 4)).subplots()


def painted(ax):
    """The figure must also survive being painted."""
    ax.figure.canvas.draw()
    return ax


def segments(collection):
    """Both ends of each line, in no order."""
    return Counter(frozenset(map(tuple, np.round(ends, 9).tolist())) for ends in collection.get_segments())


def ends(network, edges):
    """The places of some edges, in no order."""
    places = network.positions()
    return Counter(frozenset(tuple(np.round(places[node], 9).tolist()) for node in edge[:2]) for edge in edges)


def spots(ax):
    """Where the circles of the hosts stand, and how they are filled."""
    hosts = ax.collections[-1]
    return hosts.get_offsets(), [to_hex(color) for color in hosts.get_facecolors()]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_every_link_and_every_node_is_drawn_where_it_belongs(ax, network):
    assert plots.network(ax, network) is ax
    painted(ax)
    assert segments(ax.collections[0]) == ends(network, network.graph.edges)
    places = network.positions()
    assert np.allclose(spots(ax)[0], [places[host] for host in range(network.hosts)])
    switches = ax.collections[-2].get_offsets()
    assert len(switches) == network.switches
    assert ax.get_title() == network.name
    (left, right), (bottom, top) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    assert all(left < x < right and bottom < y < top for x, y in places.values())


def test_parallel_cables_are_wider(ax):
    machine = topology.dgx1v()
    plots.network(ax, machine)
    widths = dict(zip(machine.graph.edges, ax.collections[0].get_linewidths(), strict=True))
    double = {width for edge, width in widths.items() if machine.graph.edges[edge]["links"] == 2}
    single = {width for edge, width in widths.items() if machine.graph.edges[edge]["links"] == 1}
    assert len(double) == len(single) == 1 and min(double) > max(single)


@pytest.mark.parametrize(("network", "numbered"), [(topology.ring(12), True), (topology.superpod("H100", 1), False)])
def test_hosts_are_numbered_where_there_is_room(ax, network, numbered):
    plots.network(ax, network)
    written = [text.get_text() for text in ax.texts]
    assert written == ([str(host) for host in range(network.hosts)] if numbered else [])


def test_a_link_has_the_colour_and_width_of_its_busier_direction(ax):
    square = topology.ring(4)
    plots.network(ax, square, loads={(0, 1): 10.0, (1, 0): 30.0, (1, 2): 60.0, (2, 3): 0.0})
    painted(ax)
    loaded = ax.collections[1]
    assert segments(loaded) == ends(square, [(0, 1), (1, 2)])
    assert segments(ax.collections[0]) == ends(square, square.graph.edges)
    thin, thick = loaded.get_linewidths()
    assert thin == pytest.approx(0.8 + 3.2 / 2) and thick == pytest.approx(4.0)
    assert to_hex(loaded.get_colors()[1]) == PALETTE["red"].lower() != to_hex(loaded.get_colors()[0])


def test_the_scale_of_loads_can_be_shared(ax):
    plots.network(ax, topology.ring(4), loads={(0, 1): 10.0}, most=40.0)
    assert ax.collections[1].get_linewidths()[0] == pytest.approx(0.8 + 3.2 / 4)
    assert to_hex(ax.collections[1].get_colors()[0]) != PALETTE["red"].lower()


def test_arrows_point_the_way_of_the_bytes_and_only_where_one_direction_is_busier(ax):
    ring = topology.ring(8)
    plots.network(ax, ring, loads={(0, 1): 5.0, (3, 2): 5.0, (2, 3): 1.0, (5, 6): 4.0, (6, 5): 4.0})
    places = ring.positions()
    heads = [text for text in ax.texts if text.arrow_patch is not None]
    starts = [tuple(head.xyann) for head in heads]
    assert sorted(starts) == sorted(tuple(places[host]) for host in (0, 3))
    for head, target in zip(heads, (1, 2) if starts[0] == tuple(places[0]) else (2, 1), strict=True):
        start, tip, end = np.array(head.xyann), np.array(head.xy), np.array(places[target])
        assert np.allclose(tip, start + 0.62 * (end - start))


def test_arrows_are_left_out_where_there_are_many(ax):
    network = topology.hypercube(6)
    plots.network(ax, network, loads=price(rabenseifner_all_reduce(64), network, 1e6).round_loads(0))
    assert not [text for text in ax.texts if text.arrow_patch is not None]


def test_a_ring_all_reduce_loads_what_the_price_says(ax):
    network = topology.torus((4, 4))
    loads = price(ring_all_reduce(16), network, 1e6).loads
    plots.network(ax, network, loads=loads)
    assert segments(ax.collections[1]) == ends(network, {tuple(sorted(edge)) for edge in loads})


@pytest.mark.parametrize("network", NETWORKS[:-1], ids=lambda n: n.name)
def test_a_cut_is_dashed_and_one_half_is_filled(ax, network):
    cut = network.bisection()
    plots.network(ax, network, cut=cut)
    painted(ax)
    assert segments(ax.collections[1]) == ends(network, cut.cut)
    assert to_hex(ax.collections[1].get_colors()[0]) == PALETTE["red"].lower()
    filled = {host for host, color in enumerate(spots(ax)[1]) if color == PALETTE["blue"].lower()}
    assert filled == set(cut.halves[0])
    assert {color for host, color in enumerate(spots(ax)[1]) if host not in filled} == {"#ffffff"}


def test_a_path_is_one_line_with_both_ends_filled(ax):
    network = topology.fat_tree(4)
    path = network.route(1, 14)
    plots.network(ax, network, path=path)
    painted(ax)
    (line,) = ax.lines
    assert np.allclose(line.get_xydata(), [network.positions()[node] for node in path])
    orange = {host for host, color in enumerate(spots(ax)[1]) if color == PALETTE["orange"].lower()}
    assert orange == {1, 14}


@pytest.mark.parametrize("given", [{"path": [0, 2]}, {"loads": {(0, 2): 1.0}}])
def test_what_follows_no_link_is_named(ax, given):
    with pytest.raises(ValueError, match="ring of 5 has no link from 0 to 2"):
        plots.network(ax, topology.ring(5), **given)


@pytest.mark.parametrize("network", [topology.torus((3, 4)), topology.fat_tree(4), topology.dragonfly(2, 1, 1)])
def test_distances_are_those_of_networkx(ax, network):
    plots.distances(ax, network, mark=2)
    painted(ax)
    paths = dict(nx.all_pairs_shortest_path_length(network.graph))
    hops = Counter(paths[u][v] for u in range(network.hosts) for v in range(network.hosts) if u != v)
    drawn = {round(bar.get_x() + bar.get_width() / 2): bar for bar in ax.patches}
    assert {far: bar.get_height() for far, bar in drawn.items() if bar.get_height()} == dict(hops)
    assert {far for far, bar in drawn.items() if to_hex(bar.get_facecolor()) == PALETTE["orange"].lower()} == {2}
    mean = sum(far * count for far, count in hops.items()) / sum(hops.values())
    assert ax.lines[0].get_xdata()[0] == pytest.approx(mean)


def test_the_rounds_stand_at_their_number_and_the_marked_one_is_another_colour(ax):
    plots.round_times(ax, [0.1, 0.3, 0.2], mark=2)
    painted(ax)
    every, one = (patch.get_data() for patch in ax.patches)
    assert list(every.values) == [0.1, 0.3, 0.2] and list(every.edges) == [-0.5, 0.5, 1.5, 2.5]
    assert list(one.values) == [0.2] and list(one.edges) == [1.5, 2.5]
    assert ax.yaxis.get_major_formatter()(0.1, 0) == "100 ms"
    assert ax.get_ylim()[1] > 0.3


def test_rounds_without_a_mark_and_without_time_are_drawn(ax):
    plots.round_times(ax, [0.0, 0.0])
    painted(ax)
    assert len(ax.patches) == 1


def png(figure):
    stream = BytesIO()
    figure.savefig(stream, format="png")
    return stream


def test_a_light_figure_is_much_smaller_and_looks_the_same():
    heavy, lighter = Figure(figsize=(6, 4)), plots.light(Figure(figsize=(6, 4)))
    for figure in (heavy, lighter):
        plots.network(figure.subplots(), topology.torus((4, 4)), cut=topology.torus((4, 4)).bisection())
    large, small = png(heavy), png(lighter)
    assert len(small.getvalue()) < len(large.getvalue()) / 2
    one, other = (np.asarray(Image.open(stream).convert("RGB"), float) for stream in (large, small))
    assert one.shape == other.shape
    assert np.abs(one - other).mean() < 2 and np.abs(one - other).max() < 80


def test_panels_come_row_by_row():
    axes = plots.panels(3, 2, height=4, widths=(2, 1, 1))
    figure = axes[0].figure
    try:
        figure.canvas.draw()
        assert len(axes) == 6 and tuple(figure.get_size_inches()) == (6.6, 4)
        boxes = [ax.get_position() for ax in axes]
        assert boxes[0].x0 < boxes[1].x0 < boxes[2].x0 and boxes[0].y0 > boxes[3].y0
        assert boxes[0].width > 1.5 * boxes[1].width
        assert Image.open(png(figure)).mode == "P"
    finally:
        plt.close(figure)
