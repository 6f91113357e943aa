"""Schedules against a plain executor that shares no code with the library: on numbers, and on sets of contributions."""

import copy
import csv
import json
import math
import re
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distgen_lab import collectives as coll
from distgen_lab.collectives import ALGORITHMS, Round, Schedule
from distgen_lab.timeline import Span, Timeline

SUMS = ("all_reduce", "reduce", "reduce_scatter")
PLAIN = [name for name in ALGORITHMS if name not in ("chain_broadcast", "double_tree_all_reduce")]


class WrongError(Exception):
    """What the plain executor raises where a schedule cannot be run."""


def transfers_of(schedule):
    return [list(zip(r.source.tolist(), r.target.tolist(), r.chunk.tolist(), r.reduce.tolist(), strict=True))
            for r in schedule.rounds()]  # fmt: skip


def execute(rounds, start, chunks):
    """Run rounds on ``start`` (a list of dicts chunk -> value that can be added), one transfer after the other."""
    held = [dict(part) for part in start]
    for transfers in rounds:
        before = [dict(part) for part in held]
        written = Counter((target, chunk) for _, target, chunk, _ in transfers)
        for source, target, chunk, reduce in transfers:
            if not (0 <= source < len(held) and 0 <= target < len(held) and 0 <= chunk < chunks) or source == target:
                raise WrongError("nonsense")
            if chunk not in before[source] or (reduce and chunk not in held[target]):
                raise WrongError("not held")
            if not reduce and written[target, chunk] > 1:
                raise WrongError("two writers")
            held[target][chunk] = before[source][chunk] + held[target][chunk] if reduce else before[source][chunk]
    return held


def problem(collective, ranks, parts, root, value):
    """What each rank holds before, and has to hold after: ``value(rank, chunk)`` is rank's own data for a chunk."""
    everyone, size = range(ranks), parts // ranks if parts % ranks == 0 else 0

    def of(rank, names):
        return {c: value(rank, c) for c in names}

    if collective in SUMS:
        start = [of(r, range(parts)) for r in everyone]
        total = {c: sum((value(r, c) for r in everyone[1:]), value(0, c)) for c in range(parts)}
        wanted = {
            "all_reduce": lambda r: total,
            "reduce": lambda r: total if r == root else {},
            "reduce_scatter": lambda r: {c: total[c] for c in range(r * size, (r + 1) * size)},
        }[collective]
        return start, [wanted(r) for r in everyone]
    if collective == "all_to_all":
        start = [{r * ranks + t: value(r, r * ranks + t) for t in everyone} for r in everyone]
        return start, [{s * ranks + r: value(s, s * ranks + r) for s in everyone} for r in everyone]
    blocks = [of(r, range(r * size, (r + 1) * size)) for r in everyone]
    gathered = {c: v for block in blocks for c, v in block.items()}
    mine = of(root, range(parts)) if root is not None else {}
    return {
        "broadcast": lambda: ([mine if r == root else {} for r in everyone], [mine] * ranks),
        "all_gather": lambda: (blocks, [gathered] * ranks),
        "gather": lambda: (blocks, [gathered if r == root else {} for r in everyone]),
        "scatter": lambda: ([mine if r == root else {} for r in everyone],
                            [{c: mine[c] for c in range(r * size, (r + 1) * size)} for r in everyone]),
    }[collective]()  # fmt: skip


def symbol(rank, chunk):
    return Counter({rank: 1})


def right(collective, ranks, parts, root, rounds, value=symbol):
    """Whether the plain executor ends with what the collective promises."""
    start, wanted = problem(collective, ranks, parts, root, value)
    try:
        held = execute(rounds, start, ranks**2 if collective == "all_to_all" else parts)
    except WrongError:
        return False
    return all(have.get(c) == v for have, want in zip(held, wanted, strict=True) for c, v in want.items())


def right_on_numbers(schedule, seed=0):
    """The same on random integers."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-1000, 1000, (schedule.ranks, schedule.chunks)).tolist()
    facts = (schedule.collective, schedule.ranks, schedule.parts, schedule.root)
    return right(*facts, transfers_of(schedule), lambda rank, chunk: values[rank][chunk])


def by_hand(schedule, rounds):
    words = [[(s, t, c, "reduce" if r else "copy") for s, t, c, r in items] for items in rounds]
    return Schedule.from_transfers(schedule.collective, schedule.ranks, words, schedule.parts, schedule.root)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_computes_its_collective(name):
    made = [ALGORITHMS[name](ranks) for ranks in range(1, 18) if ALGORITHMS[name].takes(ranks)]
    assert len(made) >= 5
    for schedule in made:
        assert schedule.collective == ALGORITHMS[name].collective
        assert right_on_numbers(schedule), schedule
        assert schedule.verify(), schedule.verify()


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.collective in ("broadcast", "reduce", "gather",
                                                                                        "scatter")])  # fmt: skip
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_any_rank_can_be_the_root(name, ranks):
    for root in range(ranks) if ALGORITHMS[name].takes(ranks) else ():
        schedule = ALGORITHMS[name](ranks, root=root)
        assert schedule.root == root
        assert right_on_numbers(schedule)
        assert schedule.verify()


@pytest.mark.parametrize("name", ["rabenseifner_all_reduce", "recursive_doubling_all_reduce", "rabenseifner_reduce",
                                  "recursive_halving_reduce_scatter", "recursive_doubling_all_gather"])  # fmt: skip
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 16, 17])
def test_partners_may_be_taken_in_either_order(name, ranks):
    if not ALGORITHMS[name].takes(ranks):
        return
    near, far = (ALGORITHMS[name](ranks, near_first=first) for first in (True, False))
    assert right_on_numbers(near) and right_on_numbers(far) and near.verify() and far.verify()
    if ranks >= 4:
        distances = [np.abs(r.source - r.target).max() for r in far.rounds()]
        assert distances != [np.abs(r.source - r.target).max() for r in near.rounds()]


@given(st.integers(1, 20), st.integers(1, 9))
def test_pipelines_are_right_with_any_number_of_segments(ranks, segments):
    for schedule in (coll.chain_broadcast(ranks, segments), coll.double_tree_all_reduce(ranks, segments)):
        assert right_on_numbers(schedule)
        assert schedule.verify()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_grids_of_any_shape(shape):
    schedule = coll.torus_all_reduce(shape)
    assert right_on_numbers(schedule)
    assert schedule.verify()
    table = schedule.traffic()
    assert table.rounds == 2 * sum(side - 1 for side in shape)
    assert table.busiest == table.least_bytes


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 9), st.randoms(use_true_random=False))
def test_ranks_may_change_places(name, ranks, random):
    assume(ALGORITHMS[name].takes(ranks))
    order = list(range(ranks))
    random.shuffle(order)
    schedule = ALGORITHMS[name](ranks)
    moved = schedule.mapped(order)
    assert right_on_numbers(moved)
    assert moved.verify()
    sent = [row.sent for row in moved.traffic().rows]
    assert [sent[new] for new in order] == [row.sent for row in schedule.traffic().rows]
    assert moved.root == (None if schedule.root is None else order[schedule.root])


# --------------------------------------------------------------------------------------------- the verdict


@st.composite
def mutants(draw):
    """A right schedule with one transfer deleted, changed, doubled, or moved to another round."""
    name = draw(st.sampled_from(sorted(ALGORITHMS)))
    ranks = draw(st.integers(2, 8))
    assume(ALGORITHMS[name].takes(ranks))
    schedule = ALGORITHMS[name](ranks)
    rounds = transfers_of(schedule)
    places = [(t, i) for t, items in enumerate(rounds) for i in range(len(items))]
    number, place = draw(st.sampled_from(places))
    kind = draw(st.sampled_from(["none", "delete", "double", "again", "move", "source", "target", "chunk", "reduce"]))
    source, target, chunk, reduce = rounds[number][place]
    if kind in ("delete", "move", "source", "target", "chunk", "reduce"):
        del rounds[number][place]
    if kind == "double":
        rounds[number].append((source, target, chunk, reduce))
    if kind in ("move", "again"):
        rounds[draw(st.integers(0, len(rounds) - 1))].append((source, target, chunk, reduce))
    changed = {
        "source": lambda: (draw(st.integers(-1, ranks)), target, chunk, reduce),
        "target": lambda: (source, draw(st.integers(-1, ranks)), chunk, reduce),
        "chunk": lambda: (source, target, draw(st.integers(-1, schedule.chunks)), reduce),
        "reduce": lambda: (source, target, chunk, not reduce),
    }
    if kind in changed:
        rounds[number].insert(place, changed[kind]())
    return schedule, rounds, kind


@settings(max_examples=600, deadline=None)
@given(mutants())
def test_the_verdict_on_a_changed_schedule_is_that_of_the_executor(mutant):
    schedule, rounds, kind = mutant
    verdict = by_hand(schedule, rounds).verify()
    assert verdict.ok == right(schedule.collective, schedule.ranks, schedule.parts, schedule.root, rounds), verdict
    assert verdict.ok or kind != "none"
    assert bool(verdict.fault) != verdict.ok


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(coll.COLLECTIVES), st.integers(1, 3), st.data())
def test_the_verdict_on_random_transfers_is_that_of_the_executor(collective, ranks, data):
    parts = ranks if collective in ("all_to_all", "all_gather", "gather", "scatter", "reduce_scatter") else 1
    adds = st.booleans() if collective in SUMS else st.just(False)
    chunks = ranks**2 if collective == "all_to_all" else parts
    rank = st.integers(0, ranks - 1)
    item = st.tuples(rank, rank, st.integers(0, chunks - 1), adds)
    rounds = data.draw(st.lists(st.lists(item, max_size=3), max_size=5))
    root = 0 if collective in ("broadcast", "reduce", "gather", "scatter") else None
    frame = Schedule("any", collective, ranks, parts, list, root)
    assert by_hand(frame, rounds).verify().ok == right(collective, ranks, parts, root, rounds)


FAULTS = [
    ("broadcast", 3, [[(0, 3, 0, "copy")]], "unknown rank", 0, 3, "round 0: the target is rank 3; ranks are 0 to 2"),
    ("broadcast", 3, [[(0, 1, 2, "copy")]], "unknown chunk", 0, 0, "chunks are 0 to 0"),
    ("broadcast", 2, [[(0, 1, 0, "copy")], [(1, 1, 0, "copy")]], "self-send", 1, 1, "rank 1 sends chunk 0 to itself"),
    ("broadcast", 2, [[(0, 1, 0, "reduce")]], "adds", 0, 1, "in broadcast nothing is summed"),
    ("broadcast", 3, [[(0, 1, 0, "copy"), (1, 2, 0, "copy")]], "not held", 0, 1, "does not hold it yet"),
    ("broadcast", 3, [[(0, 1, 0, "copy")]], "missing", None, 2, "at the end rank 2 lacks chunk 0"),
    ("gather", 2, [], "missing", None, 0, "lacks chunk 1 of rank 1"),
    ("all_to_all", 2, [[(1, 0, 2, "copy")]], "missing", None, 1, "lacks chunk 1, what rank 0 has for it"),
    ("all_reduce", 3, [[(0, 1, 0, "copy"), (2, 1, 0, "reduce")]], "two writers", 0, 1, "rank 0 and rank 2 both write"),
    ("reduce", 3, [[(1, 0, 0, "reduce")]], "missing", None, 0, "rank 0 lacks the contribution of rank 2 in chunk 0"),
    ("reduce", 3, [[(2, 1, 0, "reduce")], [(2, 0, 0, "reduce")], [(1, 0, 0, "reduce")]], "twice", 2, 0,
     "the contribution of rank 2: it counts twice"),
]  # fmt: skip


@pytest.mark.parametrize(("collective", "ranks", "rounds", "kind", "number", "rank", "words"), FAULTS)
def test_the_first_fault_is_named_in_words(collective, ranks, rounds, kind, number, rank, words):
    verdict = Schedule.from_transfers(collective, ranks, rounds).verify()
    assert not verdict
    assert (verdict.kind, verdict.round, verdict.rank) == (kind, number, rank)
    assert words in verdict.fault and words in repr(verdict)


def test_a_contribution_beyond_the_first_64_ranks_is_named_too():
    rounds = transfers_of(coll.flat_reduce(200))
    del rounds[0][150]
    assert "contribution of rank 151 in" in by_hand(coll.flat_reduce(200), rounds).verify().fault
    rounds = [*transfers_of(coll.flat_reduce(200)), [(133, 0, 0, True)]]
    verdict = by_hand(coll.flat_reduce(200), rounds).verify()
    assert "contribution of rank 133:" in verdict.fault and verdict.round == 1


def test_a_sum_that_went_wrong_on_the_way_but_is_replaced_does_no_harm():
    rounds = [[(0, 1, 0, "reduce"), (1, 0, 0, "reduce")], [(0, 1, 0, "reduce")], [(0, 1, 0, "copy")]]
    assert Schedule.from_transfers("all_reduce", 2, rounds).verify()
    assert not Schedule.from_transfers("all_reduce", 2, rounds[:2]).verify()


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.collective == "all_reduce"])
def test_256_ranks_are_verified(name):
    schedule = ALGORITHMS[name](256)
    assert schedule.verify()
    rounds = list(schedule.rounds())
    rounds[-1] = Round(*(getattr(rounds[-1], column)[1:] for column in ("source", "target", "chunk", "reduce")))
    assert not Schedule("cut short", "all_reduce", 256, schedule.parts, lambda: rounds).verify()


def test_what_would_not_fit_into_memory_is_refused():
    with pytest.raises(ValueError, match=r"ranks is 8192.*fewer ranks"):
        coll.ring_all_reduce(8192).verify()


# --------------------------------------------------------------------------------------------- rounds and bytes


def value_of(text, p):
    """A coefficient of the published table, e.g. "2(p-1)/p"."""
    names = {"L": math.ceil(math.log2(p)), "p": p}
    spelt = re.sub(r"(\d)([(Lp])", r"\1*\2", text)
    return eval(spelt.replace("/", "*Fraction(1)/"), {"Fraction": Fraction}, names)


PUBLISHED = {
    ("bcast", "binomial / minimum spanning tree"): "binomial_broadcast",
    ("bcast", "scatter + recursive-doubling allgather"): "scatter_doubling_broadcast",
    ("bcast", "scatter + ring allgather (van de Geijn)"): "scatter_ring_broadcast",
    ("reduce", "binomial"): "binomial_reduce",
    ("reduce", "Rabenseifner: reduce-scatter (halving) + binomial gather"): "rabenseifner_reduce",
    ("scatter/gather", "binomial (LOWER BOUND met)"): "binomial_scatter",
    ("allgather", "ring"): "ring_all_gather",
    ("allgather", "recursive doubling"): "recursive_doubling_all_gather",
    ("allgather", "Bruck"): "bruck_all_gather",
    ("reduce_scatter", "ring / pairwise"): "ring_reduce_scatter",
    ("reduce_scatter", "recursive halving"): "recursive_halving_reduce_scatter",
    ("allreduce", "ring"): "ring_all_reduce",
    ("allreduce", "tree: binomial reduce + bcast"): "binomial_all_reduce",
    ("alltoall", "pairwise exchange"): "pairwise_all_to_all",
}
POWERS_ONLY = {
    ("allreduce", "recursive doubling (butterfly)"): "recursive_doubling_all_reduce",
    ("allreduce", "Rabenseifner (recursive halving + doubling)"): "rabenseifner_all_reduce",
    ("alltoall", "Bruck"): "bruck_all_to_all",
    ("scatter/gather", "binomial (LOWER BOUND met)"): "binomial_gather",
    ("alltoall", "pairwise exchange"): "xor_all_to_all",
}


@pytest.fixture(scope="module")
def formulas(shared):
    with open(shared / "data" / "collective_formulas.csv", encoding="utf-8", newline="") as file:
        return {(row["collective"], row["algorithm"]): row for row in csv.DictReader(file)}


def path_cost(schedule):
    """Start-ups, bytes and additions one after the other, each round as slow as its busiest port, by plain counting."""
    alpha = beta = gamma = 0
    for transfers in transfers_of(schedule):
        sends, gets = (Counter(item[side] for item in transfers) for side in (0, 1))
        adds = Counter(item[1] for item in transfers if item[3])
        alpha += bool(transfers)
        beta += max(*sends.values(), *gets.values(), 0)
        gamma += max(adds.values(), default=0)
    return alpha, Fraction(beta, schedule.parts), Fraction(gamma, schedule.parts)


@pytest.mark.parametrize(("row", "name", "ranks"),
                         [(r, n, p) for r, n in PUBLISHED.items() for p in (2, 3, 4, 7, 8, 16, 17)
                          if ALGORITHMS[n].takes(p)]
                         + [(r, n, p) for r, n in POWERS_ONLY.items() for p in (2, 4, 8, 16, 32)])  # fmt: skip
def test_rounds_and_bytes_are_the_published_ones(formulas, row, name, ranks):
    alpha, beta, gamma = (value_of(formulas[row][f"{what}_coeff"], ranks) for what in ("alpha", "n_beta", "n_gamma"))
    assert path_cost(ALGORITHMS[name](ranks)) == (alpha, beta, gamma)


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 15, 17])
def test_folding_costs_two_rounds_of_n(formulas, ranks):
    row = formulas["allreduce", "Rabenseifner, p not a power of two (p'=2^floor(log2 p))"]
    assert (row["alpha_coeff"], row["n_beta_coeff"]) == ("2floor(log2 p)+2", "2+2(p'-1)/p'")
    inner = 2 ** math.floor(math.log2(ranks))
    share = Fraction(inner - 1, inner)
    log = math.floor(math.log2(ranks))
    assert path_cost(coll.rabenseifner_all_reduce(ranks)) == (2 * log + 2, 2 + 2 * share, 1 + share)
    assert path_cost(coll.recursive_doubling_all_reduce(ranks)) == (log + 2, log + 2, log + 1)


@pytest.mark.parametrize(("ranks", "segments"), [(2, 1), (2, 5), (3, 1), (8, 4), (9, 20)])
def test_a_chain_costs_what_is_published(formulas, ranks, segments):
    row = formulas["bcast", "pipelined chain, k segments"]
    assert (row["alpha_coeff"], row["n_beta_coeff"]) == ("p-2+k", "(p-2+k)/k")
    rounds = ranks - 2 + segments
    assert path_cost(coll.chain_broadcast(ranks, segments)) == (rounds, Fraction(rounds, segments), 0)


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 4), (4, 1), (2, 2), (3, 4), (4, 8)])
def test_a_hierarchy_sends_little_between_nodes(nodes, per_node):
    schedule = coll.hierarchical_all_reduce(nodes, per_node)
    inter, intra = Counter(), Counter()
    for transfers in transfers_of(schedule):
        for source, target, _, _ in transfers:
            (intra if source // per_node == target // per_node else inter)[source] += Fraction(1, schedule.parts)
    assert set(inter.values()) <= {Fraction(2 * (nodes - 1), nodes * per_node)}
    assert set(intra.values()) <= {Fraction(2 * (per_node - 1), per_node)}
    assert len(inter) == (nodes > 1) * nodes * per_node
    alpha, beta, gamma = path_cost(schedule)
    assert alpha == 2 * (per_node - 1) + 2 * (nodes - 1)
    assert beta == Fraction(2 * (per_node - 1), per_node) + Fraction(2 * (nodes - 1), nodes * per_node)
    assert gamma == beta / 2


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8, 12, 16, 17, 33])
@pytest.mark.parametrize("segments", [1, 2, 7])
def test_both_trees_work_at_once_and_no_rank_has_children_in_both(ranks, segments):
    schedule = coll.double_tree_all_reduce(ranks, segments)
    children = [set(), set()]
    for transfers in transfers_of(schedule):
        for _, target, chunk, reduce in transfers:
            if reduce:
                children[chunk // segments].add(target)
    assert not children[0] & children[1]
    rounds = 2 * (math.floor(math.log2(ranks)) + segments - 1)
    alpha, beta, _ = path_cost(schedule)
    assert alpha == rounds
    assert beta <= Fraction(rounds, segments)
    if ranks >= 4 and ranks & (ranks - 1) == 0:
        assert beta == Fraction(rounds - 1, segments)  # a root has one child: two rounds are half full
    roots = {row.rank for row in schedule.traffic().rows if row.sent < 2}
    assert len(roots) <= 4 and schedule.traffic().busiest <= 2


@pytest.mark.parametrize("ranks", range(1, 18))
def test_no_algorithm_beats_the_bounds_and_the_best_meet_them(ranks):
    for algorithm in ALGORITHMS.values():
        if algorithm.takes(ranks):
            table = algorithm(ranks).traffic()
            assert table.rounds >= table.least_rounds, algorithm
            assert table.busiest >= table.least_bytes, algorithm
    for name in ("ring_all_reduce", "direct_all_reduce", "bruck_all_gather", "pairwise_all_to_all", "chain_broadcast"):
        assert ALGORITHMS[name](ranks).traffic().busiest == coll.least_bytes(ALGORITHMS[name].collective, ranks)
    for name in ("binomial_broadcast", "binomial_reduce", "bruck_all_gather", "bruck_all_to_all", "binomial_gather"):
        table = ALGORITHMS[name](ranks).traffic()
        assert (table.rounds, table.ports) == (math.ceil(math.log2(ranks)), min(1, ranks - 1))


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("ranks", range(1, 7))
def test_fewest_rounds_found_by_trying_everything(ranks, ports):
    """Breadth-first over the sets of ranks that know: each who knows tells up to ``ports`` others."""
    states, rounds = {frozenset([0])}, 0
    while frozenset(range(ranks)) not in states:
        states = {new for known in states for new in _told(known, ranks, ports)}
        rounds += 1
    assert rounds == coll.least_rounds(ranks, ports)


def _told(known, ranks, ports):
    found = {known}
    for _ in known:
        found = {told | set(others) for told in found for others in _choices(set(range(ranks)) - told, ports)}
    return found


def _choices(strangers, ports):
    return combinations(sorted(strangers), min(ports, len(strangers)))


def test_least_bytes_are_the_published_ones(formulas):
    names = {"broadcast": "bcast", "all_reduce": "allreduce", "all_gather": "allgather", "all_to_all": "alltoall",
             "reduce": "reduce", "reduce_scatter": "reduce_scatter"}  # fmt: skip
    for collective, row in names.items():
        for ranks in (2, 3, 8, 100):
            coefficient = formulas[row, "LOWER BOUND"]["n_beta_coeff"]
            assert coll.least_bytes(collective, ranks) == value_of(coefficient, ranks)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ALGORITHMS)), st.integers(1, 12))
def test_traffic_is_that_of_a_recording_of_the_messages(name, ranks):
    assume(ALGORITHMS[name].takes(ranks))
    schedule = ALGORITHMS[name](ranks)
    spans = []
    for number, transfers in enumerate(transfers_of(schedule)):
        for (source, target), chunks in Counter((s, t) for s, t, _, _ in transfers).items():
            spans.append(Span(source, "send", number, number + 1, 5 * chunks, peer=target))
            spans.append(Span(target, "recv", number, number + 1, 5 * chunks, peer=source))
    assert schedule.traffic(5 * schedule.parts).recorded() == Timeline(spans, ranks).traffic()


def test_traffic_prints_in_a_terminal_and_in_a_notebook():
    table = coll.ring_all_reduce(8).traffic(8e6)
    assert "rounds: 14 (at least 3)" in repr(table)
    assert "bytes of the busiest rank: 14 MB (at least 14 MB)" in repr(table)
    assert "<td" in table._repr_html_() and "14 MB" in table._repr_html_()
    assert "7/4 n" in repr(coll.ring_all_reduce(8).traffic())
    assert "84 more" in repr(coll.ring_all_reduce(100).traffic())
    with pytest.raises(ValueError, match=r"nbytes is 9; a multiple of parts, 8"):
        coll.ring_all_reduce(8).traffic(9).recorded()


# --------------------------------------------------------------------------------------------- data


def test_rounds_are_made_when_asked_for_and_shared_where_they_are_alike():
    first, second = (next(coll.ring_all_reduce(4096).rounds()) for _ in range(2))
    assert len(first) == len(second) == 4096
    rounds = [item for item, _ in zip(coll.ring_all_reduce(100_000).rounds(), range(3), strict=False)]
    assert rounds[0].source is rounds[2].source and rounds[0].target is rounds[2].target
    moved = coll.ring_all_reduce(50).mapped(list(range(49, -1, -1)))
    assert len({id(messages) for messages in list(moved.messages())}) == 2


def test_messages_hold_the_chunks_that_travel_together():
    rounds = list(coll.recursive_halving_reduce_scatter(8).messages())
    assert [m.chunks.tolist() for m in rounds] == [[4] * 8, [2] * 8, [1] * 8]
    assert [m.added for m in rounds] == [4, 2, 1]
    assert rounds[0].source.tolist() == list(range(8)) and rounds[0].target.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_schedule_survives_the_way_through_json(name):
    schedule = ALGORITHMS[name](4)
    back = Schedule.from_arrays(json.loads(json.dumps(schedule.arrays())))
    assert transfers_of(back) == transfers_of(schedule)
    assert repr(back) == repr(schedule)
    assert back.verify()


def test_numpy_values_are_as_good_as_plain_ones():
    for algorithm in ALGORITHMS.values():
        assert json.dumps(algorithm(np.int8(16)).arrays()) == json.dumps(algorithm(16).arrays())
    assert json.dumps(coll.binomial_gather(np.int64(3), np.int32(1)).arrays())
    assert json.dumps(coll.chain_broadcast(3, np.uint8(4)).arrays())
    assert json.dumps(coll.torus_all_reduce(np.array([2, 3])).arrays())
    data = coll.ring_all_reduce(np.int64(3)).arrays()
    data["rounds"] = [{key: np.array(column) for key, column in item.items()} for item in data["rounds"]]
    data["ranks"] = np.int32(3)
    assert Schedule.from_arrays(data).verify()


def spoilt(**changes):
    data = coll.ring_all_reduce(3).arrays()
    for place, value in changes.items():
        if place in ("source", "target", "chunk", "reduce"):
            data["rounds"][1][place] = value
        else:
            data[place] = value
    return data


HOSTILE = [
    (None, "data has NoneType"), ([], "data has list"), ({}, "the fields"), (spoilt(extra=1), "the fields"),
    (spoilt(ranks=True), "ranks is True"), (spoilt(ranks=2.0), "ranks is 2.0"), (spoilt(ranks=0), "ranks is 0"),
    (spoilt(ranks=10**6), "ranks is 1000000"), (spoilt(parts=10**9), "too many"), (spoilt(parts=0), "parts is 0"),
    (spoilt(parts=10**30), "parts is 1"), (spoilt(root=0), "root is 0"), (spoilt(root="x"), "root is 'x'"),
    (spoilt(name=7), "name is"), (spoilt(name="x" * 1000), "name is"), (spoilt(collective="magic"), "collective is"),
    (spoilt(collective=["all_reduce"]), "collective is"), (spoilt(rounds="abc"), "rounds is no list"),
    (spoilt(rounds=[{}] * 10_001), "rounds is no list"), (spoilt(rounds=[[]]), "round 0 does not have the columns"),
    (spoilt(source=[0]), "round 1 has columns of 1, 3, 3, 3 rows"), (spoilt(source=5), "round 1: source is no list"),
    (spoilt(source="012"), "round 1: source is no list"), (spoilt(source=[0, 1, 2.5]), "round 1: source is 2.5"),
    (spoilt(source=[0, 1, 2**31]), "round 1: source is 2147483648"), (spoilt(target=[0, 1, None]), "target is None"),
    (spoilt(chunk=[0, 1, [2]]), r"chunk is \[2\]"), (spoilt(reduce=[1, 0, 1]), "reduce holds something else"),
    (spoilt(source=np.zeros((3, 1), int)), "source is no list"), (spoilt(source=[0] * 100_001), "100000 transfers"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "words"), HOSTILE)
def test_data_from_anyone_is_refused_by_name(data, words):
    with pytest.raises(ValueError, match=words):
        Schedule.from_arrays(data)


JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=5)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(coll.COLLECTIVES), st.data())
def test_junk_gives_a_value_error_or_a_verdict_and_nothing_else(collective, data):
    plain = copy.deepcopy(next(a for a in ALGORITHMS.values() if a.collective == collective)(4).arrays())
    victim = data.draw(st.sampled_from([plain, *plain["rounds"]]))
    key = data.draw(st.sampled_from(sorted(victim)))
    junk = data.draw(JUNK | st.lists(st.integers(-2, 5) | st.booleans(), max_size=4))
    if isinstance(victim[key], list) and victim[key] and data.draw(st.booleans()):
        victim[key][0] = junk
    else:
        victim[key] = junk
    try:
        schedule = Schedule.from_arrays(plain)
    except ValueError:
        return
    assert schedule.verify().ok in (True, False)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: coll.ring_all_reduce(0), "ranks is 0; at least 1"),
    (lambda: coll.ring_all_reduce(2.5), "ranks is 2.5; a whole number"),
    (lambda: coll.recursive_doubling_all_gather(6), "ranks is 6; recursive doubling needs a power of two"),
    (lambda: coll.recursive_halving_reduce_scatter(12), "ranks is 12; recursive halving needs a power of two"),
    (lambda: coll.scatter_doubling_broadcast(3), "ranks is 3"), (lambda: coll.xor_all_to_all(5), "ranks is 5"),
    (lambda: coll.chain_broadcast(4, 0), "segments is 0"), (lambda: coll.double_tree_all_reduce(4, 0), "segments is 0"),
    (lambda: coll.binomial_broadcast(4, 4), "root is 4; a rank from 0 to 3"),
    (lambda: coll.binomial_reduce(4, -1), "root is -1"), (lambda: coll.torus_all_reduce(()), r"shape is \(\)"),
    (lambda: coll.torus_all_reduce((4, 0)), "shape is 0"), (lambda: coll.hierarchical_all_reduce(0, 2), "nodes is 0"),
    (lambda: coll.hierarchical_all_reduce(2, 0), "per_node is 0"), (lambda: coll.algorithms("x"), "collective is 'x'"),
    (lambda: coll.algorithms("reduce", 0), "ranks is 0"),
    (lambda: Schedule("x", "magic", 2, 1, list), "collective is 'magic'"),
    (lambda: Schedule("x", "all_gather", 4, 6, list), "parts is 6; in all_gather a multiple of ranks, 4"),
    (lambda: Schedule("x", "all_to_all", 4, 8, list), "parts is 8"),
    (lambda: Schedule("x", "broadcast", 4, 1, list), "root is None"),
    (lambda: Schedule("x", "all_reduce", 4, 1, list, 0), "root is 0; all_reduce has none"),
    (lambda: coll.ring_all_reduce(4).mapped([0, 1, 2, 2]), "order is"),
    (lambda: coll.ring_all_reduce(4).mapped([0, 1]), "order is"),
    (lambda: coll.ring_all_gather(4).then(coll.ring_all_gather(5), "x", "all_gather"), "ranks is 5"),
    (lambda: coll.ring_all_gather(4).then(coll.binomial_broadcast(4), "x", "broadcast", 0), "parts is 1"),
    (lambda: coll.ring_all_reduce(4).traffic(-1), "nbytes is -1"),
    (lambda: Schedule.from_transfers("broadcast", 2, [[(0, 1, 0)]]), "round 0, transfer 0 is"),
    (lambda: Schedule.from_transfers("broadcast", 2, [[(0, 1, 0, "add")]]), "operation is 'add'; 'copy' or 'reduce'"),
    (lambda: Schedule.from_transfers("broadcast", 2, [[(0, 1.5, 0, "copy")]]), "target is 1.5"),
    (lambda: Schedule.from_transfers("broadcast", 2, [[(0, 7, 0, "copy")]]).traffic(), "round 0 names rank 7"),
    (lambda: Round([0], [1, 2], [0], [True]), "target has shape"),
])  # fmt: skip
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_catalogue_is_complete_and_tells_what_fits():
    assert {a.collective for a in ALGORITHMS.values()} == set(coll.COLLECTIVES)
    assert all(getattr(coll, name).__doc__ for name in ALGORITHMS)
    assert [a.name for a in coll.algorithms("all_gather", 6)] == ["bruck_all_gather", "direct_all_gather",
                                                                  "ring_all_gather"]  # fmt: skip
    assert len(coll.algorithms("all_gather", 8)) == 4
    assert repr(ALGORITHMS["xor_all_to_all"]) == "xor_all_to_all: all_to_all, P a power of two"


def test_a_tiny_ring_is_what_one_writes_by_hand():
    """All orders of two ranks, and the chapter's rule: in round t rank i sends chunk (i - t) mod P, then goes on."""
    for order in permutations(range(2)):
        assert coll.ring_all_reduce(2).mapped(order).verify()
    rounds = transfers_of(coll.ring_all_gather(3))
    assert rounds == [[(i, (i + 1) % 3, (i - t) % 3, False) for i in range(3)] for t in range(2)]
