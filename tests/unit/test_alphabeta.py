"""The alpha-beta link, its fit and the costs of collectives, against numpy, published rows and schedules run here."""

import csv
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgen_lab.alphabeta import (
    Cost,
    Link,
    Pipelined,
    algorithms,
    cost,
    costs,
    crossover,
    fit,
    fit_where_it_holds,
    lower_bound,
    winners,
)


@given(st.floats(1e-9, 1), st.floats(1e-12, 1e-3))
def test_fit_finds_the_line_that_made_the_times(alpha, beta):
    sizes = [1, 100, 10_000, 1_000_000, 10**9]
    found = fit(sizes, [alpha + n * beta for n in sizes])
    assert found.link.alpha == pytest.approx(alpha, rel=1e-6)
    assert found.link.beta == pytest.approx(beta, rel=1e-6)
    assert found.worst_error < 1e-6
    assert (found.smallest, found.largest) == (1, 10**9)


def test_errors_equal_those_of_a_weighted_polyfit():
    rng = np.random.default_rng(3)
    sizes = np.geomspace(1e3, 1e7, 40)
    times = (1e-5 + sizes * 2e-10) * rng.normal(1, 0.05, 40)
    found = fit(sizes, times)
    (beta, alpha), covariance = np.polyfit(sizes, times, 1, w=1 / times, cov=True)
    assert (found.link.alpha, found.link.beta) == pytest.approx((alpha, beta))
    assert (found.alpha_error, found.beta_error) == pytest.approx(np.sqrt(np.diag(covariance))[::-1])


def test_true_values_lie_within_three_errors():
    rng = np.random.default_rng(0)
    sizes = np.geomspace(64, 2**24, 60)
    found = fit(sizes, (2e-6 + sizes / 12.5e9) * rng.normal(1, 0.02, 60))
    assert abs(found.link.alpha - 2e-6) < 3 * found.alpha_error
    assert abs(found.link.beta - 1 / 12.5e9) < 3 * found.beta_error


def test_a_start_up_that_would_be_negative_is_held_at_zero():
    found = fit([10, 100, 1000], [1e-6, 2e-5, 2.1e-4])
    assert found.link.alpha == 0
    assert found.link.beta > 0
    assert found.alpha_error == 0


def test_constant_times_have_no_bandwidth():
    text = str(fit([8, 64, 512], [1e-5, 1.01e-5, 0.99e-5]))
    assert "bandwidth not told" in text
    assert "outside that range the line says nothing" in text


def test_published_all_reduce_times_of_a100s_are_a_line_from_1_mib_up(shared):
    """From 1 MiB up the line holds to a few per cent; below, and over all sizes, it does not."""
    with open(shared / "data" / "vtrain_allreduce_lut.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "A100"]
    errors = []
    for ranks in {row["n_ranks"] for row in rows}:
        part = [row for row in rows if row["n_ranks"] == ranks]
        errors.append(fit([int(r["bytes"]) for r in part], [float(r["time_out_us"]) for r in part]).mean_error)
    assert len(errors) >= 3
    assert np.mean(errors) < 0.05


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_bad_link_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"{name} is {bad}"):
        Link(**{"alpha": 1e-6, "beta": 1e-9} | {name: bad})


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([1, 2], [1, 2]),
        ([1, 2, 3], [1, 2]),
        ([1, 2, 3], [1, 0, 2]),
        ([1, 2, 3], [1, math.nan, 2]),
        ([8, 8, 8], [1, 2, 3]),
    ],
)
def test_too_few_or_impossible_measurements_are_refused(sizes, times):
    with pytest.raises(ValueError, match=r"at least 3|positive|all 8"):
        fit(sizes, times)


def test_link_facts():
    link = Link(1e-6, 1 / 25e9)
    assert link.bandwidth == pytest.approx(25e9)
    assert link.half_bandwidth_size == pytest.approx(25_000)
    assert link.time(link.half_bandwidth_size) == pytest.approx(2 * link.alpha)
    assert Link(0, 0).bandwidth == math.inf
    with pytest.raises(ValueError, match="nbytes is -1"):
        link.time(-1)


# ---------------------------------------------------------------------- where the line holds, and where it does not


def table(shared, name):
    with open(shared / "data" / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sweep_of(rows, dataset):
    """Sizes and seconds of one sweep: in place, which the published fits use, or the only placement there is."""
    rows = [row for row in rows if row["dataset"] == dataset]
    placement = "in" if any(row["placement"] == "in" for row in rows) else "out"
    part = [row for row in rows if row["placement"] == placement]
    return [int(row["bytes"]) for row in part], [float(row["time_us"]) * 1e-6 for row in part]


def published_fits(shared):
    measured = table(shared, "nccl_measured.csv")
    there = {row["dataset"] for row in measured}
    return measured, [row for row in table(shared, "alpha_beta_fits.csv") if row["dataset"] in there]


def test_published_fits_of_full_sweeps_come_out_again(shared):
    measured, fits = published_fits(shared)
    assert len(fits) >= 9
    for row in fits:
        found, ranks = fit(*sweep_of(measured, row["dataset"])), int(row["n_ranks"])
        assert found.link.alpha * 1e6 == pytest.approx(float(row["alpha_us"]), abs=0.006), row["dataset"]
        busbw = found.link.bandwidth * 2 * (ranks - 1) / ranks
        assert busbw / 1e9 == pytest.approx(float(row["busbw_asymptotic_GBps"]), abs=0.06), row["dataset"]
        assert found.mean_error * 100 == pytest.approx(float(row["mape_pct"]), abs=0.06), row["dataset"]
        assert found.worst_error * 100 == pytest.approx(float(row["max_err_pct"]), abs=0.06), row["dataset"]


def test_a_line_does_not_follow_a_sweep_from_bytes_to_gibibytes(shared):
    measured, fits = published_fits(shared)
    wide = [row["dataset"] for row in fits if int(row["max_bytes"]) / int(row["min_bytes"]) > 1e5]
    assert len(wide) >= 6
    for dataset in wide:
        sizes, times = sweep_of(measured, dataset)
        assert fit(sizes, times).mean_error > 0.08, dataset
        held = fit_where_it_holds(sizes, times, 0.05)
        assert held.worst_error <= 0.05 and held.largest == max(sizes) and held.smallest >= 2**20, dataset
        wider = [size for size in sizes if size >= sorted(set(sizes))[sorted(set(sizes)).index(held.smallest) - 1]]
        columns = np.array([(1 / t, n / t) for n, t in zip(sizes, times, strict=True) if n in wider])
        solution = np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)[0]
        assert np.abs(columns @ solution - 1).max() > 0.05, f"{dataset} holds from a smaller size on"


def test_where_it_holds_finds_the_bend():
    sizes = [2**k for k in range(3, 31)]
    times = [1e-5 + n / 1e11 + (2e-4 if n < 2**20 else 0.0) for n in sizes]
    held = fit_where_it_holds(sizes, times, 0.01)
    assert held.smallest == 2**20
    assert held.link.alpha == pytest.approx(1e-5)
    assert fit_where_it_holds(sizes, times, 30.0).smallest == 8
    assert fit_where_it_holds([1, 2, 3, 4], [1, 9, 1, 9], 0.1) is None
    assert fit_where_it_holds([8, 8, 9, 9], [1, 1, 2, 2], 0.1) is None  # two sizes always lie on a line
    with pytest.raises(ValueError, match="tolerance is 0"):
        fit_where_it_holds(sizes, times, 0)
    with pytest.raises(ValueError, match="at least 3"):
        fit_where_it_holds([1, 2], [1, 2])


# ------------------------------------------------------------------- costs, against schedules run message by message


class Machine:
    """Ranks that hold sets of contributions per chunk; rounds of messages; counts what the critical path carries."""

    def __init__(self, ranks, parts, holds):
        self.parts, self.rounds, self.carried, self.added = parts, 0, Fraction(0), Fraction(0)
        self.state = [{c: set(holds(r, c)) for c in range(parts) if holds(r, c)} for r in range(ranks)]

    def round(self, messages):
        """(source, target, chunks, add or not): all read first; the fullest port sets the bytes of the round."""
        messages = [message for message in messages if message[2]]
        if not messages:
            return
        sent, received, added = {}, {}, {}
        read = [{chunk: frozenset(self.state[source][chunk]) for chunk in chunks} for source, _, chunks, _ in messages]
        for (source, target, chunks, add), contents in zip(messages, read, strict=True):
            sent[source] = sent.get(source, 0) + len(chunks)
            received[target] = received.get(target, 0) + len(chunks)
            for chunk, content in contents.items():
                own = self.state[target].get(chunk, set()) if add else set()
                assert not own & content, "added twice"
                self.state[target][chunk] = own | content
            added[target] = added.get(target, 0) + len(chunks) * add
        self.rounds += 1
        self.carried += Fraction(max(*sent.values(), *received.values()), self.parts)
        self.added += Fraction(max(added.values()), self.parts)

    def all_hold_everything(self, everyone):
        return all(rank.get(c) == everyone for rank in self.state for c in range(self.parts))

    @property
    def counted(self):
        return self.rounds, self.carried, self.added


def up(ranks):
    return math.ceil(math.log2(ranks))


def binomial(ranks):
    """Rounds of (parent, child, size of the child's subtree)."""
    for bit in reversed(range(up(ranks))):
        half = 2**bit
        yield [(r, r + half, min(half, ranks - r - half)) for r in range(0, ranks - half, 2 * half)]


def run_scatter(ranks):
    machine = Machine(ranks, ranks, lambda r, c: {"data"} if r == 0 else set())
    for pairs in binomial(ranks):
        machine.round([(a, b, range(b, b + size), False) for a, b, size in pairs])
    assert all(r in machine.state[r] for r in range(ranks))
    return machine


def run_gather(ranks):
    machine = Machine(ranks, ranks, lambda r, c: {"data"} if r == c else set())
    for pairs in reversed(list(binomial(ranks))):
        machine.round([(b, a, range(b, b + size), False) for a, b, size in pairs])
    assert len(machine.state[0]) == ranks
    return machine


def run_broadcast(ranks):
    machine = Machine(ranks, 1, lambda r, c: {"data"} if r == 0 else set())
    for pairs in binomial(ranks):
        machine.round([(a, b, [0], False) for a, b, _ in pairs])
    assert machine.all_hold_everything({"data"})
    return machine


def run_scatter_ring(ranks):
    machine = run_scatter(ranks)
    for step in range(ranks - 1):
        machine.round([(r, (r + 1) % ranks, [(r - step) % ranks], False) for r in range(ranks)])
    assert machine.all_hold_everything({"data"})
    return machine


def run_scatter_doubling(ranks):
    machine = run_scatter(ranks)
    for bit in (2**k for k in range(up(ranks))):
        machine.round([(r, r ^ bit, range(r - r % bit, r - r % bit + bit), False) for r in range(ranks)])
    assert machine.all_hold_everything({"data"})
    return machine


def run_all_gather_bruck(ranks):
    machine = Machine(ranks, ranks, lambda r, c: {r} if r == c else set())
    for bit in (2**k for k in range(up(ranks))):
        size = min(bit, ranks - bit)
        machine.round([(r, (r - bit) % ranks, [(r + j) % ranks for j in range(size)], False) for r in range(ranks)])
    assert all(machine.state[r] == {c: {c} for c in range(ranks)} for r in range(ranks))
    return machine


def everyone(ranks, parts):
    return Machine(ranks, parts, lambda r, c: {r})


def run_reduce(ranks):
    machine = everyone(ranks, 1)
    for pairs in reversed(list(binomial(ranks))):
        machine.round([(b, a, [0], True) for a, b, _ in pairs])
    assert machine.state[0][0] == set(range(ranks))
    return machine


def run_tree(ranks):
    machine = run_reduce(ranks)
    for pairs in binomial(ranks):
        machine.round([(a, b, [0], False) for a, b, _ in pairs])
    assert machine.all_hold_everything(set(range(ranks)))
    return machine


def run_ring(ranks):
    machine = run_ring_reduce_scatter(ranks)
    for step in range(ranks - 1):
        machine.round([(r, (r + 1) % ranks, [(r + 1 - step) % ranks], False) for r in range(ranks)])
    assert machine.all_hold_everything(set(range(ranks)))
    return machine


def run_ring_reduce_scatter(ranks):
    machine = everyone(ranks, ranks)
    for step in range(ranks - 1):
        machine.round([(r, (r + 1) % ranks, [(r - step) % ranks], True) for r in range(ranks)])
    assert all(machine.state[r][(r + 1) % ranks] == set(range(ranks)) for r in range(ranks))
    return machine


def folded(ranks, parts, core):
    """Ranks above a power of two hand in first and get the result last."""
    power, chunks = 2 ** (ranks.bit_length() - 1), range(parts)
    machine = everyone(ranks, parts)
    machine.round([(r, r - power, chunks, True) for r in range(power, ranks)])
    core(machine, power)
    machine.round([(r - power, r, chunks, False) for r in range(power, ranks)])
    assert machine.all_hold_everything(set(range(ranks)))
    return machine


def run_doubling(ranks):
    def core(machine, power):
        for bit in (2**k for k in range(up(power))):
            machine.round([(r, r ^ bit, [0], True) for r in range(power)])

    return folded(ranks, 1, core)


def run_rabenseifner(ranks):
    power = 2 ** (ranks.bit_length() - 1)

    def core(machine, power):
        bits = [2**k for k in reversed(range(up(power)))]
        kept = lambda r, bit: range(r - r % bit, r - r % bit + bit)  # noqa: E731
        for bit in bits:
            machine.round([(r, r ^ bit, kept(r ^ bit, bit), True) for r in range(power)])
        for bit in reversed(bits):
            machine.round([(r, r ^ bit, kept(r, bit), False) for r in range(power)])

    return folded(ranks, power, core)


def run_all_to_all_bruck(ranks):
    """Block (source, distance) moves on for each bit of its distance; a chunk is one of P*P blocks, n holds P."""
    place = {(s, d): s for s in range(ranks) for d in range(ranks)}
    rounds = carried = 0
    for bit in (2**k for k in range(up(ranks))):
        moved = [block for block in place if block[1] & bit]
        sent = [sum(place[block] == r for block in moved) for r in range(ranks)]
        for block in moved:
            place[block] = (place[block] + bit) % ranks
        rounds, carried = rounds + 1, carried + Fraction(max(sent), ranks)
    assert all(at == (s + d) % ranks for (s, d), at in place.items())
    return rounds, carried, 0


EXECUTED = {
    ("scatter", "binomial"): run_scatter,
    ("gather", "binomial"): run_gather,
    ("broadcast", "binomial"): run_broadcast,
    ("broadcast", "scatter + ring all-gather"): run_scatter_ring,
    ("broadcast", "scatter + recursive doubling"): run_scatter_doubling,
    ("reduce", "binomial"): run_reduce,
    ("all_gather", "Bruck"): run_all_gather_bruck,
    ("reduce_scatter", "ring"): run_ring_reduce_scatter,
    ("all_reduce", "ring"): run_ring,
    ("all_reduce", "binomial tree"): run_tree,
    ("all_reduce", "recursive doubling"): run_doubling,
    ("all_reduce", "Rabenseifner"): run_rabenseifner,
    ("all_to_all", "Bruck"): run_all_to_all_bruck,
}


@pytest.mark.parametrize("key", EXECUTED, ids=" ".join)
def test_a_closed_form_equals_the_schedule_run_message_by_message(key):
    compared = 0
    for ranks in [*range(2, 20), 32, 37]:
        if any(row.algorithm == key[1] for row in costs(key[0], ranks)):
            done, found = EXECUTED[key](ranks), cost(*key, ranks)
            counted = done if isinstance(done, tuple) else done.counted
            assert (found.alpha, found.beta, found.gamma) == counted, ranks
            compared += 1
    assert compared >= 5


def chain(ranks, segments):
    machine = Machine(ranks, segments, lambda r, c: {"data"} if r == 0 else set())
    for step in range(ranks + segments):
        machine.round([(r, r + 1, [step - r], False) for r in range(ranks - 1) if 0 <= step - r < segments])
    assert machine.all_hold_everything({"data"})
    return machine


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("segments", [1, 2, 7])
def test_a_pipelined_chain_takes_the_rounds_of_its_closed_form(ranks, segments):
    found = cost("broadcast", "pipelined chain", ranks, segments=segments)
    assert (found.alpha, found.beta, found.gamma) == chain(ranks, segments).counted
    assert cost("broadcast", "pipelined chain", ranks).rounds(segments) == found.alpha


def in_order_tree(members, shift):
    """Parents in the binary tree of 1..members in which a number's trailing zeros are its level; numbers shifted."""

    def above(i):
        bit = i & -i
        up_from = (i ^ bit) | (bit << 1)
        return up_from if up_from <= members else i ^ bit

    label = lambda i: (i - 1 + shift) % members + 1  # noqa: E731
    return {label(i): label(above(i)) if above(i) else 0 for i in range(1, members + 1)}


def depths(tree):
    """Edges from the top, 0, to each number."""
    known = {0: 0}
    while len(known) <= len(tree):
        known |= {child: known[parent] + 1 for child, parent in tree.items() if parent in known}
    return known


def double_tree(members, segments, rooted):
    """Broadcast down two trees and, reversed, reduce up them: (rounds, bytes, bytes added) of both.

    Rooted: number 0 is a rank above the trees. Else it is none, and the tops of the trees start.
    """
    trees = [in_order_tree(members, shift) for shift in (0, 1)]
    assert not (set(trees[0].values()) & set(trees[1].values())) - {0}, "a rank is inner in both trees"
    tops = [{0} if rooted else {child for child, parent in tree.items() if not parent} for tree in trees]
    machine = Machine(members + 1, 2 * segments, lambda r, c: {"data"} if r in tops[c % 2] else set())
    start, rounds = 1 if rooted else 2, []
    for step in range(members + segments):
        rounds.append([])
        for k, tree in enumerate(trees):
            for child, depth in depths(tree).items():
                if depth >= start and 0 <= step - depth + start < segments:
                    rounds[-1].append((tree[child], child, [2 * (step - depth + start) + k], False))
        machine.round(rounds[-1])
    everyone = set(range(0 if rooted else 1, members + 1))
    assert all(machine.state[r].get(c) == {"data"} for r in everyone for c in range(2 * segments))
    reduced = Machine(members + 1, 2 * segments, lambda r, c: {r})
    for messages in reversed(rounds):
        reduced.round([(b, a, chunks, True) for a, b, chunks, _ in messages])
    assert all(reduced.state[r][c] == everyone for k in (0, 1) for r in tops[k] for c in range(k, 2 * segments, 2))
    return machine.counted, reduced.counted


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_a_double_binary_tree_takes_the_rounds_of_its_closed_form_and_no_more_bytes(segments):
    slack = Fraction(1, 2 * segments)  # half a round of one pass
    for ranks in range(2, 34):
        down, back = double_tree(ranks - 1, segments, rooted=True)
        broadcast = cost("broadcast", "double binary tree", ranks, segments=segments)
        reduce = cost("reduce", "double binary tree", ranks, segments=segments)
        assert (broadcast.alpha, reduce.alpha) == (down[0], back[0]), ranks
        assert 0 <= broadcast.beta - down[1] <= slack and 0 <= reduce.beta - back[1] <= slack, ranks
        assert 0 <= reduce.gamma - back[2] <= slack, ranks
        if ranks in (2, 4, 8, 16, 32):
            assert broadcast.beta == down[1] and reduce.gamma == back[2]


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_so_does_the_all_reduce_over_two_trees_without_a_root(segments):
    slack = Fraction(1, 2 * segments)
    for ranks in range(3, 34):
        down, back = double_tree(ranks, segments, rooted=False)
        found = cost("all_reduce", "double binary tree", ranks, segments=segments)
        assert found.alpha == down[0] + back[0], ranks
        assert 0 <= found.beta - down[1] - back[1] <= 2 * slack, ranks
        assert 0 <= found.gamma - back[2] <= slack, ranks


@given(st.integers(2, 5000), st.floats(1e-7, 1e-4), st.floats(1e9, 1e12), st.floats(1, 1e10), st.floats(0, 1e-9))
def test_the_best_number_of_segments_is_best(ranks, alpha, bandwidth, nbytes, gamma):
    link = Link(alpha, 1 / bandwidth)
    for name, kind in (("all_reduce", "double binary tree"), ("broadcast", "pipelined chain")):
        pipe = cost(name, kind, ranks)
        best, time = pipe.best_segments(link, nbytes, gamma), pipe.time(link, nbytes, gamma)
        assert time == pytest.approx(pipe.segmented(best).time(link, nbytes, gamma))
        others = {1, max(1, best - 1), best + 1, 2 * best, max(1, best // 2)}
        most = max(1, nbytes // pipe.trees)
        for other in (m for m in others if m <= most):
            assert time <= pipe.segmented(other).time(link, nbytes, gamma) * (1 + 1e-12)


def test_segments_of_a_small_message_by_trying_all():
    link = Link(1e-6, 1 / 25e9)
    pipe = cost("all_reduce", "double binary tree", 64)
    for nbytes in (10, 1000, 120_000, 3_000_000):
        tried = {m: pipe.segmented(m).time(link, nbytes) for m in range(1, min(nbytes // 2, 500) + 1)}
        assert pipe.best_segments(link, nbytes) == min(tried, key=tried.get)
        assert pipe.ideal_segments(link, nbytes) == pytest.approx(math.sqrt(5 * nbytes / 25e9 / 1e-6))
    # With alpha 0 a segment is as small as can be: one byte of each tree.
    assert pipe.ideal_segments(Link(0, 1e-9), 1000) == math.inf
    assert pipe.best_segments(Link(0, 1e-9), 1000) == 500
    assert pipe.best_segments(Link(0, 0), 1000) == 1
    assert pipe.best_segments(link, 0) == 1


def test_the_pipelined_chain_approaches_its_published_optimum():
    """T* = (sqrt((p-2) alpha) + sqrt(n beta))^2 with a real number of segments, Pjesivac-Grbovic et al. 2007."""
    link, pipe = Link(1e-6, 1 / 25e9), cost("broadcast", "pipelined chain", 64)
    for nbytes in (1e6, 1e8, 1e10):
        best = (math.sqrt(62 * 1e-6) + math.sqrt(nbytes / 25e9)) ** 2
        assert best <= pipe.time(link, nbytes) * (1 + 1e-12)
        assert pipe.time(link, nbytes) == pytest.approx(best, rel=1e-3)


# ------------------------------------------------------------------------------------- the published table

ROWS = {
    "Hockney": ("point_to_point", "message"),
    "binomial / minimum spanning tree": ("broadcast", "binomial"),
    "scatter + recursive-doubling allgather": ("broadcast", "scatter + recursive doubling"),
    "scatter + ring allgather (van de Geijn)": ("broadcast", "scatter + ring all-gather"),
    "pipelined chain, k segments": ("broadcast", "pipelined chain"),
    "Rabenseifner: reduce-scatter (halving) + binomial gather": ("reduce", "Rabenseifner"),
    "binomial (LOWER BOUND met)": ("scatter", "binomial"),
    "ring / pairwise": ("reduce_scatter", "ring"),
    "recursive doubling (butterfly)": ("all_reduce", "recursive doubling"),
    "Rabenseifner (recursive halving + doubling)": ("all_reduce", "Rabenseifner"),
    "Rabenseifner, p not a power of two (p'=2^floor(log2 p))": ("all_reduce", "Rabenseifner"),
    "tree: binomial reduce + bcast": ("all_reduce", "binomial tree"),
    "pairwise exchange": ("all_to_all", "pairwise"),
    "dissemination": ("barrier", "dissemination"),
}
NAMES = {"bcast": "broadcast", "allgather": "all_gather", "allreduce": "all_reduce", "alltoall": "all_to_all"}
BY_HAND = ("double", "hierarchical", "in-network", "bisection")


def value(text, ranks, segments):
    """The value of a printed coefficient such as "2(p-1)/p" or "2floor(log2 p)+2"."""
    power = 2 ** (ranks.bit_length() - 1)
    text = text.replace("floor(log2 p)", "F").replace("p'", "q") or "0"
    text = re.sub(r"(?<=[\d\)])(?=[LFqk(])", "*", text)
    names = {"p": Fraction(ranks), "L": Fraction(up(ranks)), "F": ranks.bit_length() - 1, "q": Fraction(power)}
    return eval(text, {"__builtins__": {}}, names | {"k": Fraction(segments)})


def test_every_row_of_the_published_table_is_one_of_ours(shared):
    compared = set()
    for row in table(shared, "collective_formulas.csv"):
        collective = NAMES.get(row["collective"], row["collective"])
        if collective == "busbw factor" or any(word in row["algorithm"] for word in BY_HAND):
            continue
        bound = row["algorithm"] == "LOWER BOUND"
        key = (collective, "lower bound") if bound else ROWS.get(row["algorithm"], (collective, row["algorithm"]))
        folds = "not a power" in row["algorithm"]
        only = "p=2^k" in row["validity"] and not folds
        for ranks in (3, 7, 12) if folds else (2, 4, 8, 64) if only else (2, 4, 8, 64, 3, 7, 12):
            found = cost(*key, ranks)
            found = found.segmented(5) if isinstance(found, Pipelined) else found
            printed = [value(row[name], ranks, 5) for name in ("alpha_coeff", "n_beta_coeff", "n_gamma_coeff")]
            assert [found.alpha, found.beta, found.gamma] == printed, (key, ranks)
        compared.add((collective, row["algorithm"]))
    assert len(compared) >= 26


@pytest.mark.parametrize(("ranks", "per_node"), [(8, 4), (24, 8), (1024, 8), (12, 12), (12, 1)])
def test_the_hierarchical_all_reduce_is_rings_inside_and_between_nodes(ranks, per_node):
    found, nodes = cost("all_reduce", "hierarchical", ranks, per_node=per_node), ranks // per_node
    g, m = Fraction(per_node), Fraction(nodes)
    assert (found.inner.alpha, found.inner.beta) == (2 * (g - 1), 2 * (g - 1) / g)
    assert found.alpha - found.inner.alpha == 2 * (m - 1)
    assert found.beta - found.inner.beta == 2 * (m - 1) / (m * g)
    assert found.gamma == (g - 1) / g + (m - 1) / (m * g)
    slow, fast, n = Link(5e-6, 1 / 50e9), Link(1e-6, 1 / 400e9), 1e8
    between = cost("all_reduce", "ring", nodes).time(slow, n / per_node)
    inside = cost("all_reduce", "ring", per_node).time(fast, n)
    assert found.time(slow, n, inner_link=fast) == pytest.approx(inside + between)
    assert found.time(slow, n, 1e-12, inner_link=slow) == pytest.approx(found.time(slow, n, 1e-12))


def test_in_network_sums_and_the_bisection_bound():
    assert (
        cost("all_reduce", "in-network", 64, depth=2).alpha,
        cost("all_reduce", "in-network", 64, depth=2).beta,
    ) == (2, 1)
    for ranks in (4, 7, 8, 64):
        left = ranks // 2
        crossing = sum(Fraction(1, ranks) for a in range(left) for b in range(left, ranks))
        assert cost("all_to_all", "bisection bound", ranks, links=2).beta == crossing / 2
    assert cost("all_to_all", "bisection bound", 64, links=2).beta == Fraction(64, 8)  # a ring: P/8


@given(st.integers(1, 3000))
def test_no_algorithm_is_below_a_lower_bound_and_one_rank_costs_nothing(ranks):
    for collective in (
        "broadcast",
        "reduce",
        "scatter",
        "gather",
        "all_gather",
        "reduce_scatter",
        "all_reduce",
        "all_to_all",
    ):
        least = lower_bound(collective, ranks)
        for row in costs(collective, ranks):
            for segments in (1, 3) if isinstance(row, Pipelined) else (None,):
                found = row if segments is None else row.segmented(segments)
                assert found.alpha >= least.alpha and found.gamma >= least.gamma, row
                assert found.beta >= least.beta, row
                assert ranks > 1 or not (found.alpha or found.beta or found.gamma)


def test_the_chapters_equations_have_their_names():
    named = {row.equation: row for c in ("point_to_point", "broadcast", "all_reduce") for row in costs(c, 8)}
    assert {"P2P", "Bcast", "AR Butterfly", "AR RING"} <= set(named)
    link, n = Link(3e-6, 1 / 50e9), 1e8
    assert named["Bcast"].time(link, n) == pytest.approx(3 * (3e-6 + n / 50e9))
    assert named["AR Butterfly"].time(link, n) == pytest.approx(6 * 3e-6 + 1.75 * n / 50e9)
    assert named["AR RING"].time(link, n, gamma=1e-12) == pytest.approx(14 * 3e-6 + 1.75 * n / 50e9 + 0.875e-4)


def test_the_ring_formula_gives_the_simulated_microseconds():
    """64 MiB over a 64-rank ring at 12.5 GB/s and 1 us is 10,695.646 us in SimGrid (simulator_golden.csv)."""
    seconds = cost("all_reduce", "ring", 64).time(Link(1e-6, 1 / 12.5e9), 2**26)
    assert seconds * 1e6 == pytest.approx(10695.646, abs=5e-4)


# --------------------------------------------------------------------------------------------- crossovers

IB = Link(1e-6, 1 / 25e9)


@pytest.mark.parametrize(("ranks", "nbytes"), [(8, 47e3), (64, 284e3), (256, 882e3), (1024, 2.81e6)])
def test_the_unpipelined_tree_meets_the_ring_where_the_two_formulas_are_equal(ranks, nbytes):
    found = crossover(cost("all_reduce", "binomial tree", ranks), cost("all_reduce", "ring", ranks), IB)
    steps = math.log2(ranks)
    exact = 1e-6 * 25e9 * (ranks - 1 - steps) / (steps - (ranks - 1) / ranks)
    assert found.nbytes == pytest.approx(exact, rel=1e-12)
    assert found.nbytes == pytest.approx(nbytes, rel=0.01)
    assert found.faster == ("binomial tree", "ring")


@pytest.mark.parametrize(("ranks", "nbytes"), [(8, 67e3), (64, 3.9e6), (256, 51e6), (1024, 677e6)])
def test_the_best_double_tree_meets_the_ring_where_brute_force_finds_it(ranks, nbytes):
    found = crossover(cost("all_reduce", "double binary tree", ranks), cost("all_reduce", "ring", ranks), IB)
    assert found.nbytes == pytest.approx(nbytes, rel=0.015)
    assert found.faster == ("double binary tree", "ring")

    def ahead(n):
        segments, steps = np.arange(1, 4000), int(math.log2(ranks))
        tree = (2 * (steps - 1 + segments) * (1e-6 + n / segments / 25e9)).min()
        return tree - 2 * (ranks - 1) * (1e-6 + n / ranks / 25e9)

    assert ahead(found.nbytes * 0.999) < 0 < ahead(found.nbytes * 1.001)


def test_two_costs_may_cross_twice_or_never():
    twice = crossover(cost("broadcast", "pipelined chain", 8), cost("broadcast", "scatter + ring all-gather", 8), IB)
    assert len(twice.sizes) == 2
    assert twice.faster == ("pipelined chain", "scatter + ring all-gather", "pipelined chain")
    assert str(twice) == "pipelined chain below 22.2 kB, scatter + ring all-gather below 778 kB, then pipelined chain"
    never = crossover(cost("all_reduce", "ring", 8), cost("all_reduce", "Rabenseifner", 8), IB)
    assert (never.sizes, never.nbytes, never.faster) == ((), None, ("Rabenseifner",))
    assert str(never) == "Rabenseifner at every size"
    assert crossover(cost("all_reduce", "ring", 2), cost("all_reduce", "Rabenseifner", 2), IB).faster == ("either",)
    tree = cost("broadcast", "double binary tree", 2)
    assert crossover(tree, cost("broadcast", "binomial", 2), IB).faster == ("either",)


@given(st.integers(2, 10).map(lambda k: 2**k), st.floats(1e-7, 1e-4), st.floats(1e8, 1e12), st.floats(0, 1e-10))
def test_at_a_crossover_both_take_the_same_time_and_around_it_the_named_one_is_faster(ranks, alpha, bandwidth, gamma):
    link, rows = Link(alpha, 1 / bandwidth), list(costs("all_reduce", ranks))
    for one in rows:
        for other in rows:
            found = crossover(one, other, link, gamma)
            for name, size, after in zip(found.faster, found.sizes, found.faster[1:], strict=False):
                a, b = one.time(link, size, gamma), other.time(link, size, gamma)
                assert a == pytest.approx(b, rel=1e-9)
                assert name != after
            if found.sizes:
                early, late = min(found.sizes) / 1.5, max(found.sizes) * 1.5
                faster = [
                    (one if one.time(link, n, gamma) < other.time(link, n, gamma) else other) for n in (early, late)
                ]
                assert [row.algorithm for row in faster] == [found.faster[0], found.faster[-1]]


def test_winners_is_the_fastest_of_each_cell():
    ranks, sizes = [2, 6, 8, 64, 1024], [8, 1e4, 1e6, 1e8, 1e10]
    found = winners("all_reduce", IB, ranks, sizes)
    assert found.shape == (5, 5)
    for i, p in enumerate(ranks):
        for j, n in enumerate(sizes):
            times = {row.algorithm: row.time(IB, n) for row in costs("all_reduce", p)}
            assert times[found[i, j]] == pytest.approx(min(times.values()))
    two = winners("all_reduce", IB, [256], [881e3, 883e3], among=["ring", "binomial tree"])
    assert two.tolist() == [["binomial tree", "ring"]]
    assert winners("all_reduce", IB, [2], [1e3], among=["Rabenseifner", "ring"])[0, 0] == "ring"  # equal: the first
    assert "hierarchical" in winners("all_reduce", IB, [64], [1e5], per_node=8, among=["hierarchical"])


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cost("all_reduce", "ring", 0), "ranks is 0"),
        (lambda: cost("all_reduce", "ring", 2.5), "ranks is 2.5"),
        (lambda: cost("all_reduce", "ring", True), "ranks is True"),
        (lambda: cost("all_gather", "recursive doubling", 6), "ranks is 6; .* power of two"),
        (lambda: cost("alreduce", "ring", 8), "unknown collective 'alreduce'; did you mean all_reduce"),
        (lambda: cost("all_reduce", "rabenseifer", 8), "did you mean Rabenseifner"),
        (lambda: cost("all_reduce", "ring", 8, segments=3), "segments is 3, but ring all_reduce is not pipelined"),
        (lambda: cost("broadcast", "pipelined chain", 8, segments=0), "segments is 0"),
        (lambda: cost("all_reduce", "hierarchical", 8), "takes per_node; given: none"),
        (lambda: cost("all_reduce", "hierarchical", 8, per_node=3), "per_node is 3; a divisor of the 8"),
        (lambda: cost("all_reduce", "ring", 8, per_node=4), "takes no options; given: per_node"),
        (lambda: costs("all_reduce", 8, pernod=4), "did you mean per_node"),
        (lambda: costs("barrier", 8, depth=4), "unknown option 'depth'; there is none"),
        (lambda: cost("all_reduce", "ring", 8).time(IB, -1), "nbytes is -1"),
        (lambda: cost("all_reduce", "ring", 8).time(IB, math.inf), "nbytes is inf"),
        (lambda: cost("all_reduce", "ring", 8).time(IB, 1, gamma=-1e-9), "gamma is -1e-09"),
        (
            lambda: cost("all_reduce", "ring", 8).time(IB, 1, inner_link=IB),
            "nothing of ring all_reduce is inside nodes",
        ),
        (lambda: crossover(cost("all_reduce", "ring", 8), cost("all_reduce", "ring", 8), IB, math.nan), "gamma is nan"),
        (lambda: winners("all_gather", IB, [6], [1], among=["recursive doubling"]), "one that works on 6 ranks"),
        (lambda: winners("all_gather", IB, [6], [1], among=["rings"]), "did you mean ring"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_names_are_found_however_they_are_typed():
    assert cost("AllReduce", "recursive_doubling", 8) == cost("all_reduce", "recursive doubling", 8)
    assert costs("all-to-all", 8)["bruck"].algorithm == "Bruck"
    assert "lower bound" not in algorithms("all_reduce")


def test_sizes_may_be_an_array():
    sizes = np.array([[0, 8, 1e3], [1e5, 1e7, 1e9]])
    for row in costs("all_reduce", 64, per_node=8):
        times = row.time(IB, sizes, 1e-12)
        assert times.shape == sizes.shape
        assert times.ravel().tolist() == pytest.approx([row.time(IB, n, 1e-12) for n in sizes.ravel()])
        assert type(row.time(IB, 8)) is float


def test_tables_print_and_show():
    rows = costs("all_reduce", 8)
    assert str(rows["ring"]) == "ring all_reduce of 8 ranks: 14 α + 7/4 nβ + 7/8 nγ"
    assert "double binary tree  (2 + m) (2 α + 2 nβ/m + 1 nγ/m)" in repr(rows)
    assert rows._repr_html_().count("<tr") == len(rows) + 1
    assert isinstance(rows["ring"], Cost) and len(list(rows)) == len(rows)
    assert str(cost("barrier", "dissemination", 1)).endswith(": 0")
    assert "in 4 segments" in str(cost("all_reduce", "double binary tree", 8, segments=4))
