"""Measure the planner: one plan, a search over thousands of devices, the validation; ``--fit`` fits the constants anew.

python tests/bench/planner.py
python tests/bench/planner.py --fit     # writes distgen_lab/data/planner.json
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import distgen_lab
from distgen_lab.models import ModelShape
from distgen_lab.planner import Batch, Layout, cluster, plan, search, validate
from distgen_lab.planner.validation import Validation, cross_validate, fit

CONFIG = {"model_type": "gpt2", "n_embd": 20480, "n_layer": 105, "n_head": 128, "n_positions": 2048}
WAYS = {
    "model": None,
    "width": lambda case: case.model.hidden,
    "layout": lambda case: str(case.layout),
    "data set": lambda case: case.source,
}


def main() -> None:
    """Print the times; with ``--fit`` write the constants first."""
    if "--fit" in sys.argv:
        write(fit())
    model = ModelShape.from_config(CONFIG | {"vocab_size": 51200}, "530B")
    layout = Layout(data=18, tensor=8, pipe=35, recompute="full")
    began = time.perf_counter()
    for _ in range(100):
        plan(model, cluster("DGX A100", 5040), Batch(5040, 2048), layout)
    print(f"one plan: {(time.perf_counter() - began) * 10:.2f} ms")
    for devices, sequences in ((5040, 5040), (5120, 5120)):
        began = time.perf_counter()
        found = search(model, cluster("DGX A100", devices), Batch(sequences, 2048), stage=(0, 1, 2, 3))
        took = time.perf_counter() - began
        print(f"530B on {devices} devices: {found.tried} layouts in {took:.2f} s; best {found.best.layout}")
    began = time.perf_counter()
    checked = validate()
    print(f"validation in {time.perf_counter() - began:.1f} s\n{checked.table()}")
    for name, group in WAYS.items():
        table = Validation(cross_validate(group), checked.efficiency)
        errors = ", ".join(f"{source} {table.mape(source):.2%}" for source in table.sources)
        print(f"each {name} predicted from the others: {errors}")


def write(constants: object) -> None:
    """Write the constants with four digits."""
    values = {name: float(f"{value:.4g}") for name, value in asdict(constants).items() if name != "fitted_on"}
    words = "929 iteration times of Megatron-DeepSpeed on A100 (vTrain, commit f8dda8473a48), both sets with one weight"
    path = Path(distgen_lab.__file__).parent / "data" / "planner.json"
    path.write_text(json.dumps(values | {"fitted_on": words}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
