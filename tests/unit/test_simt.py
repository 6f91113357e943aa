"""A warp against each lane run alone in plain Python; segments and banks against brute force over bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab.simt import If, Let, While, bank_conflicts, branch, coalesce, run, strided

# ----------------------------------------------------------------------------- random kernels
# A kernel is described by plain data, from which both a warp's statements and a scalar interpreter are made.

NAMES = ("a", "b", "c")
OPERATORS = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: (x * y) % 97, "%": lambda x, y: x % 7 + y
}  # fmt: skip
operands = st.one_of(st.sampled_from(("lane", *NAMES)), st.integers(-5, 5))
conditions = st.tuples(st.just("less"), operands, operands)
lets = st.tuples(
    st.just("let"), st.sampled_from(NAMES), st.sampled_from(sorted(OPERATORS)), operands, operands, st.integers(1, 4)
)


def blocks(statements):
    return st.lists(statements, max_size=3)


# a loop counts its own variable up, so that it ends
loops = st.tuples(st.just("while"), st.integers(0, 4), st.integers(1, 5), blocks(lets))
statements = st.recursive(
    st.one_of(lets, loops),
    lambda inner: st.tuples(st.just("if"), conditions, blocks(inner), blocks(inner)),
    max_leaves=8,
)
kernels = st.lists(statements, max_size=4)


def warp_kernel(kernel, numbers):
    """The statements of simt."""
    made = []
    for kind, *rest in kernel:
        if kind == "let":
            name, operator, x, y, cycles = rest
            made.append(Let(name, value_of(operator, x, y), cycles))
        elif kind == "if":
            (_, x, y), then, otherwise = rest
            made.append(If(less(x, y), warp_kernel(then, numbers), warp_kernel(otherwise, numbers)))
        else:
            name, (base, step, body) = f"n{next(numbers)}", rest
            count = Let(name, lambda s, name=name: s[name] + 1)
            zero = Let(name, lambda s: 0 * s["lane"])
            end = While(
                lambda s, n=name, b=base, k=step: s[n] < (s["lane"] + b) % k, [*warp_kernel(body, numbers), count]
            )
            made += [zero, end]
    return made


def value_of(operator, x, y):
    return lambda s: OPERATORS[operator](get(s, x), get(s, y))


def less(x, y):
    return lambda s: get(s, x) < get(s, y)


def get(state, operand):
    return state[operand] if isinstance(operand, str) else operand


def alone(kernel, lane):
    """One lane on its own: its variables and the cycles it takes."""
    state, cycles = {"lane": lane, **dict.fromkeys(NAMES, 0)}, 0

    def block(kernel):
        nonlocal cycles
        for kind, *rest in kernel:
            if kind == "let":
                name, operator, x, y, took = rest
                state[name] = OPERATORS[operator](get(state, x), get(state, y))
                cycles += took
            elif kind == "if":
                (_, x, y), then, otherwise = rest
                cycles += 1
                block(then if get(state, x) < get(state, y) else otherwise)
            else:
                base, step, body = rest
                cycles += 1
                for _ in range((lane + base) % step):
                    cycles += 1
                    block(body)
                    cycles += 1
                cycles += 1

    block(kernel)
    return state, cycles


@settings(max_examples=150, deadline=None)
@given(kernels, st.sampled_from([1, 4, 32]))
def test_every_lane_ends_as_if_it_ran_alone(kernel, lanes):
    done = run(warp_kernel(kernel, iter(range(1000))), lanes, **dict.fromkeys(NAMES, 0))
    singles = [alone(kernel, lane) for lane in range(lanes)]
    for name in NAMES:
        assert done.state[name].tolist() == [state[name] for state, _ in singles]
    assert done.masks().sum() == sum(cycles for _, cycles in singles)
    assert done.longest_lane == max(cycles for _, cycles in singles) <= done.cycles
    if done.issues:
        assert done.efficiency == pytest.approx(sum(cycles for _, cycles in singles) / (lanes * done.cycles))


@settings(max_examples=50, deadline=None)
@given(kernels)
def test_one_lane_never_waits(kernel):
    done = run(warp_kernel(kernel, iter(range(1000))), 1, **dict.fromkeys(NAMES, 0))
    assert done.efficiency == 1 and done.cycles == done.longest_lane


# ----------------------------------------------------------------------------- by hand


def test_paths_that_both_are_taken_cost_the_sum_one_that_is_not_costs_nothing():
    assert branch(lambda lane: lane % 2 == 0, 10, 6).cycles == 1 + 10 + 6
    assert branch(lambda lane: lane >= 0, 10, 6).cycles == 1 + 10
    assert branch(lambda lane: lane < 0, 10, 6).cycles == 1 + 6
    assert branch(lambda lane: lane == 5, 10, 6).efficiency == pytest.approx((32 + 10 + 31 * 6) / (32 * 17))


def test_divergence_between_warps_costs_nothing():
    """The same share of threads takes each path, but whole warps agree."""
    within = branch(lambda lane: lane % 2 == 0)
    between = [branch(lambda lane, warp=warp: lane * 0 == warp % 2) for warp in range(2)]
    assert within.cycles == 21 and all(done.cycles == 11 and done.efficiency == 1 for done in between)


def test_nested_branches_serialise_all_their_leaves():
    def leaf(name):
        return [Let(name, lambda s: 1, 5)]

    inner = [If(lambda s: s["lane"] % 2 == 0, leaf("x"), leaf("y"))]
    done = run([If(lambda s: s["lane"] < 16, inner, inner)])
    assert done.cycles == 1 + 2 * (1 + 5 + 5)
    assert done.efficiency == pytest.approx((32 + 32 + 32 * 5) / (32 * 23))


def test_a_loop_takes_as_long_as_its_slowest_lane_and_lanes_meet_after_it():
    kernel = [While(lambda s: s["n"] > 0, [Let("n", lambda s: s["n"] - 1)]), Let("after", lambda s: 7)]
    done = run(kernel, n=np.arange(32))
    assert done.cycles == 31 * 2 + 1 + 1
    assert done.issues[-1].active == 32 and done.state["after"].tolist() == [7] * 32


def test_masked_lanes_may_compute_nonsense():
    kernel = [If(lambda s: s["x"] > 0, [Let("y", lambda s: 1 / s["x"])])]
    done = run(kernel, 2, x=[0.0, 4.0])
    assert done.state["y"].tolist() == [0, 0.25]


def test_issues_follow_each_other():
    done = branch(lambda lane: lane < 8, 4, 3)
    assert [(issue.label, issue.start, issue.cycles, issue.active) for issue in done.issues] == [
        ("if", 0, 1, 32), ("then", 1, 4, 8), ("otherwise", 5, 3, 24)
    ]  # fmt: skip
    assert done.masks().shape == (8, 32) and done.masks()[1].tolist() == [True] * 8 + [False] * 24


def test_given_arrays_are_not_changed():
    given_x = np.arange(32.0)
    run([Let("x", lambda s: s["x"] + 1)], x=given_x)
    assert given_x.tolist() == list(range(32))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: run([], 0), "lanes is 0; 1 or more"),
        (lambda: run([], x=[1, 2]), r"x has the shape \(2,\); one value, or one for each of 32 lanes"),
        (lambda: run([Let("x", lambda s: [1, 2])]), r"x has the shape \(2,\)"),
        (lambda: run([Let("x", lambda s: 1, 0)]), "cycles of x is 0; 1 or more"),
    ],
)
def test_bad_kernels_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_loop_without_end_is_told(monkeypatch):
    monkeypatch.setattr("distgen_lab.simt.MOST_ISSUES", 1000)
    with pytest.raises(ValueError, match=r"more than 1,000 instructions; does its loop end\?"):
        run([While(lambda s: True, [Let("x", lambda s: 1)])])


def test_another_statement_is_refused():
    with pytest.raises(TypeError, match="a kernel holds a str; Let, If and While"):
        run(["x = 1"])


# ----------------------------------------------------------------------------- memory


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=32), st.sampled_from([1, 2, 4, 8, 16]),
       st.sampled_from([32, 64, 128]))  # fmt: skip
def test_segments_are_those_that_hold_a_wanted_byte(addresses, size, segment):
    found = coalesce(addresses, size, segment)
    wanted = {byte for address in addresses for byte in range(address, address + size)}
    assert found.segments == tuple(sorted({byte // segment for byte in wanted}))
    assert found.wanted == len(wanted) and found.moved == segment * len({byte // segment for byte in wanted})
    assert 0 < found.efficiency <= 1


@pytest.mark.parametrize(
    ("stride", "start", "sectors"), [(1, 0, 4), (1, 4, 5), (2, 0, 8), (4, 0, 16), (8, 0, 32), (100, 0, 32), (0, 0, 1)]
)
def test_sectors_of_strided_loads(stride, start, sectors):
    """CUDA C++ Best Practices Guide: 4 sectors of 32 bytes for an aligned warp of 4-byte words, 5 when misaligned."""
    assert len(coalesce(strided(stride, start=start)).segments) == sectors


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=32))
def test_bank_conflicts_are_the_most_words_on_one_bank(addresses):
    words = {address // 4 for address in addresses}
    assert bank_conflicts(addresses) == max(sum(word % 32 == bank for word in words) for bank in range(32))


@pytest.mark.parametrize(("stride", "ways"), [(0, 1), (1, 1), (2, 2), (3, 1), (16, 16), (32, 32), (33, 1)])
def test_a_stride_conflicts_by_its_common_divisor_with_32(stride, ways):
    assert bank_conflicts(strided(stride)) == ways == (np.gcd(stride, 32) if stride else 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [(lambda: coalesce([]), "addresses is .*; at least one"), (lambda: coalesce([-4]), "none below 0"),
     (lambda: coalesce([0], 0), "size is 0 and segment 32; both must be 1 or more"),
     (lambda: coalesce([0], 4, 0), "segment 0"), (lambda: bank_conflicts([]), "at least one")],
)  # fmt: skip
def test_bad_addresses_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
