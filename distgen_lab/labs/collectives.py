"""Time collectives on the ranks there are, in the manner of nccl-tests.

``python -m distgen_lab.labs.collectives all_reduce broadcast --largest 4194304``, or under torchrun, mpiexec or srun:
see ``distgen_lab.labs``.
"""

import argparse
from collections.abc import Sequence

from distgen_lab.bench import BUS_FACTORS, HEADER, measure, sizes
from distgen_lab.labs import ranks_of, run

__all__ = ["lab", "main"]


def lab(
    operations: Sequence[str] = ("all_reduce",), smallest: int = 64, largest: int = 2**20, repeats: int = 20
) -> str:
    """Measure each operation for each size in a rank; return the tables."""
    lines = [ranks_of()]
    for operation in operations:
        lines += [operation, HEADER]
        lines += [str(measure(operation, size, repeats)) for size in sizes(smallest, largest)]
    return "\n".join(lines)


def main() -> None:
    """Run the lab from the command line."""
    parser = argparse.ArgumentParser(description="Time collectives in the manner of nccl-tests.")
    parser.add_argument(
        "operations", nargs="*", default=["all_reduce"], metavar="OPERATION", help=", ".join(BUS_FACTORS)
    )
    parser.add_argument("--smallest", type=int, default=64, help="smallest size in bytes")
    parser.add_argument("--largest", type=int, default=2**20, help="largest size in bytes")
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    unknown = [name for name in given.operations if name not in BUS_FACTORS]
    if unknown:
        parser.error(f"unknown operation {unknown[0]!r}; there are: {', '.join(BUS_FACTORS)}")
    run(lab, given.operations, given.smallest, given.largest, given.repeats)


if __name__ == "__main__":
    main()
