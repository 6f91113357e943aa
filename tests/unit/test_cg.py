"""Conjugate gradients: every variant against SciPy, NumPy and the published table of costs; what is refused."""

import csv
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgen_lab import cg
from distgen_lab.alphabeta import Link
from distgen_lab.cg import VARIANTS, BreakdownError, Machine, NotPositiveDefiniteError, Poisson, solve

NAMES = list(VARIANTS)
every_variant = pytest.mark.parametrize("variant", NAMES)


def dense(problem):
    """The matrix of a grid problem, column by column."""
    return np.stack([problem(column) for column in np.eye(problem.side**2)], axis=1)


def kronecker(side):
    """The five-point Laplacian from its definition, without the library."""
    line = 2 * np.eye(side) - np.eye(side, k=1) - np.eye(side, k=-1)
    return np.kron(line, np.eye(side)) + np.kron(np.eye(side), line)


def spd(size, seed, condition=100.0):
    """A dense symmetric positive definite matrix with random axes."""
    draw = np.random.default_rng(seed)
    axes, _ = np.linalg.qr(draw.standard_normal((size, size)))
    return axes @ np.diag(np.geomspace(1, condition, size)) @ axes.T


# ---------------------------------------------------------------------------------------- against SciPy and NumPy


@every_variant
@pytest.mark.parametrize("preconditioned", [False, True])
def test_iterations_and_iterates_are_scipys(variant, preconditioned):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    problem = Poisson(24, contrast=8.0 if preconditioned else 1.2)
    b = np.random.default_rng(1).standard_normal(problem.side**2)
    inverse = problem.inverse_diagonal() if preconditioned else None
    operator = linalg.LinearOperator((len(b), len(b)), matvec=problem)
    jacobi = linalg.LinearOperator((len(b), len(b)), matvec=lambda v: inverse * v) if preconditioned else None
    theirs = []
    x, info = linalg.cg(
        operator, b, rtol=1e-8, M=jacobi, callback=lambda x: theirs.append(np.linalg.norm(b - problem(x)))
    )
    mine = solve(problem, b, variant, inverse, rtol=1e-8, watch=True)
    assert info == 0 and mine.converged
    assert abs(mine.iterations - len(theirs)) <= 1 + len(theirs) // 50
    assert mine.x == pytest.approx(x, rel=1e-4, abs=1e-6 * np.abs(x).max())
    begun = np.array(mine.true_residuals[1:21]) * np.linalg.norm(b)
    assert begun == pytest.approx(np.array(theirs[:20]), rel=1e-6)


@every_variant
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(0, 10**6), st.booleans())
def test_the_solution_is_numpys(variant, size, seed, replaced):
    matrix = spd(size, seed)
    b = np.random.default_rng(seed + 1).standard_normal(size)
    found = solve(matrix, b, variant, rtol=1e-10, replace_every=10 if replaced else 0)
    assert found.converged
    assert found.x == pytest.approx(np.linalg.solve(matrix, b), rel=1e-6, abs=1e-8)


@every_variant
def test_a_first_iterate_and_a_dense_preconditioner_are_used(variant):
    matrix, b = spd(20, 3, 1e4), np.ones(20)
    exact = np.linalg.solve(matrix, b)
    assert solve(matrix, b, variant, x0=exact, rtol=1e-8).iterations == 0
    assert solve(matrix, b, variant, preconditioner=np.linalg.inv(matrix)).iterations == 1


@pytest.mark.parametrize("cuts", [[0, 9], [0, 4, 9], [0, 1, 5, 6, 9]])
def test_strips_make_the_laplacian_together(cuts):
    whole = Poisson(9, contrast=3.0)
    scaling = np.diag(whole.scaling.ravel())
    matrix = scaling @ kronecker(9) @ scaling
    assert dense(whole) == pytest.approx(matrix)
    assert whole.inverse_diagonal() == pytest.approx(1 / np.diag(matrix))
    v = np.random.default_rng(0).standard_normal(81)
    strips = [Poisson(9, 3.0, low, high) for low, high in pairwise(cuts)]
    pieces = [v[9 * strip.low : 9 * strip.high] for strip in strips]
    edges = [strip.edges(piece) for strip, piece in zip(strips, pieces, strict=True)]
    out = [
        strip(piece, edges[k - 1][1] if k else 0.0, edges[k + 1][0] if k + 1 < len(strips) else 0.0)
        for k, (strip, piece) in enumerate(zip(strips, pieces, strict=True))
    ]
    assert np.concatenate(out) == pytest.approx(matrix @ v)


# ------------------------------------------------------------------------------------ counts and the price of them


@pytest.mark.parametrize(("variant", "first", "each"), [("classic", 2, 2), ("Chronopoulos-Gear", 2, 1), ("Gropp", 2, 2),
                                                        ("pipelined", 2, 1)])  # fmt: skip
def test_reductions_are_counted(variant, first, each):
    counts = [solve(Poisson(8), np.ones(64), variant, rtol=0, most=most) for most in (3, 8)]
    assert [found.reductions for found in counts] == [first + 3 * each, first + 8 * each]
    assert VARIANTS[variant].reductions == each
    assert counts[1].products - counts[0].products == 5


def test_the_table_is_the_published_one(shared):
    with open(shared / "data" / "cg_variants.csv") as file:
        rows = {row["variant"].split(" ")[0].lower(): row for row in csv.DictReader(file) if "CR" not in row["variant"]}
    names = {"classic": "cg", "Chronopoulos-Gear": "chronopoulos-gear", "Gropp": "gropp", "pipelined": "pipelined"}
    for name, variant in VARIANTS.items():
        row = rows[names[name]]
        assert variant.flops_per_row == int(row["flops_per_row_excl_spmv_pc"])
        assert (variant.axpys, variant.dots, variant.vectors) == tuple(
            int(row[key]) for key in ("axpys", "dots", "vectors_memory")
        )
        assert variant.reductions == int(row["global_syncs_per_iter"])
        printed = row["time_model"].replace("2G", "2*G")
        for g in (0.0, 0.5, 1.0, 3.0):
            for spmv in (0.0, 1.0, 2.0):
                for pc in (0.0, 0.7):
                    value = eval(printed, {"max": max}, {"G": g, "SPMV": spmv, "PC": pc})
                    assert variant.time(g, spmv, pc) == pytest.approx(value)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_no_variant_gains_more_than_its_limit(reduction, product, preconditioning):
    parts = reduction, product, preconditioning
    classic = VARIANTS["classic"].time(*parts)
    for name, limit in (("Chronopoulos-Gear", 2), ("Gropp", 2), ("pipelined", 3)):
        assert classic <= limit * VARIANTS[name].time(*parts) * (1 + 1e-12)
    assert VARIANTS["classic"].time(1, 1, 0) == 3 * VARIANTS["pipelined"].time(1, 1, 0)


@given(st.floats(1e-7, 1e-4), st.floats(1e-11, 1e-8), st.integers(16, 400), st.floats(0, 20))
@settings(max_examples=30, deadline=None)
def test_the_crossover_is_the_first_number_of_ranks(alpha, flop, side, preconditioner):
    machine = Machine(Link(alpha, 1e-10), flop, side, preconditioner)
    found = cg.crossover(machine, most=2**10)
    faster = (
        ranks
        for ranks in range(1, 2**10 + 1)
        if cg.iteration_time("pipelined", machine, ranks) < cg.iteration_time("classic", machine, ranks)
    )
    assert found == next(faster, None)


def test_a_reduction_by_hand():
    machine = Machine(Link(2e-6, 1e-9), 1e-9, 100, preconditioner=2)
    assert [machine.reduction(ranks) for ranks in (1, 2, 5, 8)] == pytest.approx([0, 2.024e-6, 6.072e-6, 6.072e-6])
    assert machine.product(1) == pytest.approx(9e-5) and machine.product(4) == pytest.approx(2.25e-5 + 2.8e-6)
    assert machine.preconditioning(4) == pytest.approx(5e-6)
    alone = 9e-5 + 2e-5 + 10_000 * 10 * 1e-9
    assert cg.iteration_time("classic", machine, 1) == pytest.approx(alone)


# ------------------------------------------------------------------------------------------------------- stability


def test_the_price_of_pipelining_and_how_replacement_pays_it():
    spectrum = cg.spread_spectrum(48, 1e5)

    def best(variant, every=0):
        try:
            return solve(
                np.diag(spectrum), np.ones(48), variant, rtol=0, most=400, replace_every=every, watch=True
            ).attained
        except BreakdownError as error:
            return error.solution.attained

    classic, merged, piped, repaired = (
        best("classic"),
        best("Chronopoulos-Gear"),
        best("pipelined"),
        best("pipelined", 20),
    )
    assert classic < 1e-14 < merged < 1e-11 < piped
    assert repaired < 1e-12


def test_the_recurrence_lies_and_drift_says_how_much():
    found = solve(Poisson(40, 100.0), np.ones(1600), "pipelined", watch=True)
    assert found.converged and found.residuals[-1] <= 1e-8
    assert found.true_residuals[-1] == pytest.approx(
        np.linalg.norm(np.ones(1600) - Poisson(40, 100.0)(found.x)) / 40, rel=1e-6
    )
    assert found.drift == found.true_residuals[-1] / found.residuals[-1] > 10
    assert solve(Poisson(40, 100.0), np.ones(1600), "classic", watch=True).drift == pytest.approx(1, abs=1e-3)


def test_the_spectrum_has_the_condition_asked_for():
    spectrum = cg.spread_spectrum(50, 1e4)
    assert spectrum.max() / spectrum.min() == pytest.approx(1e4) and (np.diff(spectrum) > 0).all()


# ------------------------------------------------------------------------------------------------------- bad input


@every_variant
def test_an_indefinite_matrix_is_found_in_the_iteration(variant):
    with pytest.raises(NotPositiveDefiniteError, match=r"p.Ap is -.*the matrix is not positive definite"):
        solve(np.diag([1.0, 2.0, -3.0, 4.0]), np.array([1.0, 1.0, 5.0, 1.0]), variant)


@every_variant
def test_a_singular_matrix_is_found(variant):
    with pytest.raises(NotPositiveDefiniteError, match=r"p.Ap is 0"):
        solve(np.zeros((3, 3)), np.ones(3), variant)


@every_variant
def test_a_matrix_that_is_not_symmetric_is_refused(variant):
    with pytest.raises(NotPositiveDefiniteError, match="the matrix is not symmetric"):
        solve(np.array([[2.0, 1.0], [0.0, 2.0]]), np.ones(2), variant)


@every_variant
def test_an_indefinite_preconditioner_is_found(variant):
    with pytest.raises(NotPositiveDefiniteError, match=r"r.Mr is -.*preconditioner"):
        solve(np.diag([1.0, 2.0, 3.0]), np.ones(3), variant, preconditioner=np.array([-1.0, -1.0, -1.0]))


def test_breakdown_is_said_and_keeps_what_was_reached():
    spectrum = cg.spread_spectrum(48, 1e5)
    with pytest.raises(BreakdownError, match="rounding errors have won") as caught:
        solve(np.diag(spectrum), np.ones(48), "pipelined", rtol=0, most=1000)
    assert caught.value.solution.iterations > 100 and not caught.value.solution.converged


def test_nan_and_overflow_are_breakdowns():
    with pytest.raises(BreakdownError):
        solve(lambda v: v * math.nan, np.ones(3))
    with pytest.raises(BreakdownError, match="overflowed"), np.errstate(over="ignore"):
        solve(np.eye(2), np.full(2, 1e200))


def test_nothing_to_solve_is_solved():
    found = solve(np.eye(3), np.zeros(3))
    assert found.iterations == 0 and found.converged and not found.x.any()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: solve(np.eye(3), np.ones(2)), r"the matrix has the shape \(3, 3\)"),
        (lambda: solve(np.ones(3), np.ones(3)), r"the matrix has the shape \(3,\)"),
        (lambda: solve(np.eye(2), np.ones((2, 2))), r"b has the shape \(2, 2\)"),
        (lambda: solve(np.eye(2), np.array([1.0, math.nan])), "b holds NaN"),
        (lambda: solve(np.eye(2), np.ones(2), x0=np.ones(3)), r"x0 has the shape \(3,\)"),
        (lambda: solve(np.eye(2), np.ones(2), "fast"), "variant is 'fast'; there are: classic"),
        (lambda: solve(np.eye(2), np.ones(2), rtol=-1), "rtol is -1"),
        (lambda: solve(np.eye(2), np.ones(2), most=-1), "most is -1"),
        (lambda: solve(np.eye(2), np.ones(2), replace_every=1.5), "replace_every is 1.5"),
        (lambda: solve(np.eye(2), np.ones(2), preconditioner=np.ones(3)), r"the preconditioner has the shape \(3,\)"),
        (lambda: Poisson(0), "side is 0"),
        (lambda: Poisson(4, contrast=0.5), "contrast is 0.5"),
        (lambda: Machine(Link(1, 1), 1, 4).product(0), "ranks is 0"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_loop_is_watched():
    def merged(multiply, start_dots, b, steps):
        x = np.zeros_like(b)
        for _ in range(steps):
            r = b - multiply(x)
            sums = start_dots((r, r), (r, multiply(r)))
            multiply(r)
            rho, curvature = sums.wait()
            x = x + rho / curvature * r
            yield x

    seen = cg.watched(merged, np.diag([1.0, 2.0]), [1.0, 1.0], 2)
    assert seen["reductions"] == 2 and seen["beside"] == 2
    assert seen["iterates"][0] == pytest.approx([2 / 3, 2 / 3])
