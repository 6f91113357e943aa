"""Hostile and hapless submissions as data, each with the points it deserves and a word of the reason.

The master is the one of ``conftest.py``: three questions of ten points. What is not said otherwise is right.
"""

import copy

FULL = {"q9-1": "10", "q9-2": "10", "q9-3": "10"}
NO_1 = FULL | {"q9-1": "0"}
NO_2 = FULL | {"q9-2": "0"}
NO_3 = FULL | {"q9-3": "0"}
NONE = dict.fromkeys(FULL, "0")
LIST = "def squares(n):\n    return [i * i for i in range(n)]\n"
WRONG = "def squares(n):\n    return found or [7] * n\n"
STUB = []
"""The first answer cell as it is handed out; put here by the test."""


def helper(source):
    return {"cell_type": "code", "id": "my-helper", "metadata": {}, "source": source, "outputs": []}


# Writes to every pipe of the parent process what a record of a passed check looks like, and some junk.
FORGER = """
import json, os
found = []
parent = os.getppid()
try:
    numbers = os.listdir(f"/proc/{parent}/fd")
except OSError:  # the sandbox does not let it look
    numbers = []
for number in numbers:
    try:
        if "pipe:" in os.readlink(f"/proc/{parent}/fd/{number}"):
            with open(f"/proc/{parent}/fd/{number}", "wb", buffering=0) as pipe:
                for name in [f"{i}-{kind}" for i in range(80) for kind in ("visible", "hidden")]:
                    event = {"notebook": name, "cell": "q9-2-hidden", "state": "match", "seconds": 0}
                    pipe.write(json.dumps(event).encode() + b"\\n")
                pipe.write(b"junk\\n[1]\\n{}\\n")
    except OSError:
        pass
"""
# An answer to question 2 (the others are right), and a word its reason must hold. None of them may score.
ANSWERS = {
    "syntax_error": ("def squares(n:\n    return", "SyntaxError"),
    "raises": ("def squares(n):\n    raise ValueError('my mistake')", "ValueError: my mistake"),
    "surrogate_in_error": ("def squares(n):\n    raise ValueError('\\udcff')", "ValueError"),
    "endless_loop": ("def squares(n):\n    while True:\n        pass", "timeout"),
    "swallows_interrupt": (
        "import time\ndef squares(n):\n    end = time.time() + 6\n    while time.time() < end:\n        try:\n"
        "            time.sleep(0.1)\n        except KeyboardInterrupt:\n            pass\n"
        "    return [i * i for i in range(n)]",
        "timeout",
    ),
    "asks_for_input": ("def squares(n):\n    return [input()] * n", "StdinNotImplementedError"),
    "sys_exit": ("import sys\ndef squares(n):\n    sys.exit()", "SystemExit"),
    "returns_true": ("def squares(n):\n    return True", "TypeError"),
    "returns_none": ("def squares(n):\n    return None", "None"),
    "returns_text": ("def squares(n):\n    return '[0, 1, 4, 9]'", "wrong"),
    "endless_generator": ("import itertools\ndef squares(n):\n    return itertools.count()", "too large"),
    "equal_to_everything": (
        "class Sly(list):\n    def __eq__(self, other):\n        return True\ndef squares(n):\n    return Sly([1])",
        "wrong",
    ),
    "hard_coded": ("def squares(n):\n    return [0, 1, 4, 9]", "right for the worked input"),
    "forged_report": (
        "from IPython.display import display\nfrom distgen_lab import checks\n"
        "display({checks.MIME: {'id': 'q9-2-hidden', 'value': [[0]]}}, raw=True)\ndef squares(n):\n    return []",
        "wrong",
    ),
    "second_report": (
        "from distgen_lab import checks as c\ndef squares(n):\n    c.report('q9-2-hidden', 1)\n"
        "    return [i * i for i in range(n)]",
        "several reports",
    ),
    "patched_report": (
        "from distgen_lab import checks\nchecks.explain = lambda *a: (True, 'right')\n"
        "def squares(n):\n    return [7] * n",
        "wrong",
    ),
    "forged_record": (FORGER + "def squares(n):\n    return [7] * n", "wrong"),
    "silenced_errors": (
        "get_ipython().showtraceback = lambda *a, **k: None\ndef squares(n):\n    raise ValueError('hidden')",
        "no report",
    ),
    "leaves_with_exit": ("def squares(n):\n    return [i * i for i in range(n)]\nexit()", "died"),
    "os_exit": ("import os\ndef squares(n):\n    os._exit(0)", "died"),
    "segfault": ("import ctypes\ndef squares(n):\n    return ctypes.string_at(0)", "died"),
    "kills_itself": ("import os\ndef squares(n):\n    os.kill(os.getpid(), 9)", "died"),
    "endless_recursion": ("def squares(n):\n    return squares(n)", ""),
    "ignores_interrupts": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ndef squares(n):\n    while True:\n        pass",
        "timeout",
    ),
    "prints_for_ever": (
        "def squares(n):\n    while True:\n        try:\n            print('x' * 10_000, flush=True)\n"
        "        except BaseException:\n            pass",
        "timeout",
    ),
    "huge_display": (
        "from IPython.display import display\ndef squares(n):\n"
        "    display({'text/plain': 'x' * 60_000_000}, raw=True)\n    return [7] * n",
        "",
    ),
    "assert_remover": (
        "import ast\nclass Drop(ast.NodeTransformer):\n    def visit_Assert(self, node):\n        return ast.Pass()\n"
        "get_ipython().ast_transformers.append(Drop())\ndef squares(n):\n    return [7] * n",
        "wrong",
    ),
    "optimised_compile": (
        "import builtins\n_c = builtins.compile\nbuiltins.compile = lambda *a, **k: _c(*a, **{**k, 'optimize': 2})\n"
        "def squares(n):\n    return [7] * n",
        "wrong",
    ),
    "usage_error": (
        "from IPython.core.error import UsageError\ndef squares(n):\n    raise UsageError('x')",
        "no report",
    ),
    "broken_traceback": (
        "class Bad(Exception):\n    def _render_traceback_(self):\n        raise ValueError\n"
        "def squares(n):\n    raise Bad",
        "",
    ),
    "forged_idle": (
        "def squares(n):\n    k = get_ipython().kernel\n"
        "    k.send_response(k.iopub_socket, 'status', {'execution_state': 'idle'})\n    return [7] * n",
        "",
    ),
    "custom_exception_handler": (
        "get_ipython().set_custom_exc((Exception,), lambda *a, **k: None)\ndef squares(n):\n    raise ValueError",
        "no report",
    ),
    "patched_verify": (
        "from distgen_lab.collectives import Schedule\nSchedule.verify = lambda self: True\n"
        "def squares(n):\n    return [7] * n",
        "wrong",
    ),
    "patched_print": ("import builtins\nbuiltins.print = None\ndef squares(n):\n    return [7] * n", "wrong"),
    "patched_encode": (
        "import distgen_lab.checks as c\nc.encode = lambda value: 'match'\ndef squares(n):\n    return [7] * n",
        "wrong",
    ),
    "patched_nbval": (
        "import nbval.plugin as p\np.IPyNbCell.compare_outputs = lambda *a, **k: True\n"
        "def squares(n):\n    return [7] * n",
        "",
    ),
    "spies_on_its_checks": (
        "import sys\nget_ipython().events.register('pre_run_cell', lambda info: print(info.raw_cell))\n"
        "def squares(n):\n    seen = sys._getframe(1).f_code.co_consts\n    return [0, 1, 4, 9]",
        "right for the worked input",
    ),
    "forged_recording": (
        "from distgen_lab import checks\ndef squares(n):\n    return {'value': [0] * n, 'recording': {'bytes': 0}}",
        "wrong",
    ),
    "nested_forgery": (
        "from IPython.display import display\nfrom distgen_lab import checks\nv = []\n"
        "for _ in range(200):\n    v = [v]\n"
        "checks.report = lambda name, value: display({checks.MIME: {'id': name, 'value': v}}, raw=True)\n"
        "def squares(n):\n    return []",
        "",
    ),
    "report_of_another_type": (
        "from IPython.display import display\nfrom distgen_lab import checks\n"
        "checks.report = lambda name, value: display({checks.MIME: [name, value]}, raw=True)\n"
        "def squares(n):\n    return [i * i for i in range(n)]",
        "no report",
    ),
    "not_a_number": ("def squares(n):\n    return [float('nan')] * n", "wrong"),
    "number_of_5000_digits": ("def squares(n):\n    return [10**5000] * n", ""),
    "raises_interrupt": ("def squares(n):\n    raise KeyboardInterrupt", "KeyboardInterrupt"),
    "raises_exit_of_generator": ("def squares(n):\n    raise GeneratorExit", "GeneratorExit"),
    "raises_cancelled": ("import asyncio\ndef squares(n):\n    raise asyncio.CancelledError", "CancelledError"),
    "starts_a_loop": (
        "import asyncio\nasync def f(n):\n    return [i * i for i in range(n)]\n"
        "def squares(n):\n    return asyncio.run(f(n))",
        "RuntimeError",
    ),
    "unknown_magic": ("%nosuch\ndef squares(n):\n    return [i * i for i in range(n)]", "NameError"),
    "ends_the_worker": ("import os\ndef squares(n):\n    os.kill(os.getppid(), 9)\n    return [7] * n", ""),
}
# Honest answers to question 2, written another way: all points for all questions.
HONEST = {
    "numpy_array": "import numpy as np\ndef squares(n):\n    return np.arange(n) ** 2",
    "numpy_scalars": "import numpy as np\ndef squares(n):\n    return [np.int64(i) ** 2 for i in range(n)]",
    "floats_for_ints": "def squares(n):\n    return [float(i * i) for i in range(n)]",
    "a_tuple": "def squares(n):\n    return tuple(i * i for i in range(n))",
    "a_map": "def squares(n):\n    return map(lambda i: i * i, range(n))",
    "fractions": "from fractions import Fraction\ndef squares(n):\n    return [Fraction(i) * i for i in range(n)]",
    "warns": (
        "import sys, warnings\ndef squares(n):\n    warnings.warn('careful')\n    print('note', file=sys.stderr)\n"
        "    return [i * i for i in range(n)]"
    ),
    "shows_pictures": (
        "import matplotlib.pyplot as plt\ndef squares(n):\n    plt.plot(range(n))\n    plt.show()\n"
        "    return [i * i for i in range(n)]"
    ),
    "backspaces": "print('x' * 200_000 + '\\b' * 200_000)\ndef squares(n):\n    return [i * i for i in range(n)]",
    "failing_command": "!exit 3\ndef squares(n):\n    return [i * i for i in range(n)]",
    "reads_empty_input": "import sys\nsys.stdin.read()\ndef squares(n):\n    return [i * i for i in range(n)]",
    "noisy_thread": (
        "import threading, time\ndef noise():\n    for _ in range(2000):\n"
        "        print('!')\n        time.sleep(0.001)\n"
        "threading.Thread(target=noise, daemon=True).start()\ndef squares(n):\n    return [i * i for i in range(n)]"
    ),
    "uses_widgets": (
        "import ipywidgets\nipywidgets.IntSlider()\ndef squares(n):\n    return [i * i for i in range(n)]"
    ),
}
# Notebooks made otherwise: (change to the JSON data, wanted points, word in any reason).
NOTEBOOKS = {
    "as_it_should_be": (lambda nb: nb, FULL, "right"),
    "no_metadata": (lambda nb: [c.update(metadata={}) for c in nb["cells"]] and nb | {"metadata": {}}, FULL, "right"),
    "checks_deleted": (lambda nb: nb | {"cells": [c for c in nb["cells"] if "visible" not in c["id"]]}, FULL, "right"),
    "answer_is_markdown": (lambda nb: nb["cells"][2].update(cell_type="markdown") or nb, FULL, "right"),
    "answer_deleted": (lambda nb: nb["cells"].pop(2) and nb, NO_1, "missing"),
    "check_edited": (lambda nb: nb["cells"][3].update(source="print('all fine')") or nb, FULL, "right"),
    "setup_edited": (
        lambda nb: (
            nb["cells"][1].update(source="import math\nfactor = 2")
            or nb["cells"][2].update(source="def double(x):\n    return factor * x")
            or nb
        ),
        FULL,
        "right",
    ),
    "helper_cell_before": (
        lambda nb: (
            nb["cells"].insert(2, helper("def helper(x):\n    return x + x"))
            or nb["cells"][3].update(source="double = helper")
            or nb
        ),
        FULL,
        "right",
    ),
    "helper_cell_after": (
        lambda nb: (
            nb["cells"].insert(3, helper("def helper(x):\n    return x + x"))
            or nb["cells"][2].update(source="def double(x):\n    return helper(x)")
            or nb
        ),
        FULL,
        "right",
    ),
    "answered_twice": (
        lambda nb: nb["cells"].insert(2, nb["cells"][2] | {"source": "def double(x):\n    return 0"}) or nb,
        FULL,
        "right",
    ),
    "copied_stub_below": (lambda nb: nb["cells"].insert(3, copy.deepcopy(STUB[0])) or nb, FULL, "right"),
    "noisy": (
        lambda nb: (
            nb["cells"][1].update(
                source="import sys, warnings\nprint('x' * 3_000_000)\nwarnings.warn('!')\nprint('!', file=sys.stderr)"
            )
            or nb
        ),
        FULL,
        "right",
    ),
    "flood_of_prints": (
        lambda nb: nb["cells"][1].update(source="for i in range(20_000):\n    print(i, flush=True)") or nb,
        FULL,
        "right",
    ),
    "format_3": (
        lambda nb: {
            "nbformat": 3,
            "nbformat_minor": 0,
            "metadata": {},
            "worksheets": [
                {"cells": [{"cell_type": "code", "input": c["source"], "id": c["id"]} for c in nb["cells"]]}
            ],
        },
        FULL,
        "right",
    ),
    "format_5": (lambda nb: nb | {"nbformat": 5}, NONE, "format 5"),
    "kernel_killed": (
        lambda nb: nb["cells"][4].update(source="import os\nos._exit(1)") or nb,
        NO_2,
        "answer cell: died",
    ),
    "no_cells": (lambda nb: nb | {"cells": []}, NONE, "missing"),
    "cells_are_text": (lambda nb: nb | {"cells": "none"}, NONE, "no list of cells"),
    "other_section": (
        lambda nb: nb | {"metadata": {"distgen": {"section": "03_other"}}},
        NONE,
        "no notebook for section",
    ),
    "own_cell_kills_the_kernel": (
        lambda nb: nb["cells"].insert(4, helper("import os\nos._exit(1)")) or nb,
        FULL,
        "right",
    ),
    "names_rebound_in_another_question": (
        lambda nb: (
            nb["cells"][2].update(source="list = math = 0\ndef double(x):\n    return 2 * x")
            or nb["cells"][4].update(source="def squares(n):\n    return list(math.floor(i) ** 2 for i in range(n))")
            or nb
        ),
        FULL,
        "right",
    ),
    "each_question_kills": (
        lambda nb: [c.update(source="import os\nos._exit(1)") for c in nb["cells"] if "answer" in c["id"]] and nb,
        NONE,
        "died",
    ),
    "nan_in_metadata": (lambda nb: nb["metadata"].update(x=float("nan")) or nb, FULL, "right"),
    "split_cell": (
        lambda nb: (
            nb["cells"].insert(3, nb["cells"][2] | {"source": "    return 2 * x"})
            or nb["cells"][2].update(source="def double(x):")
            or nb
        ),
        NO_1,
        "SyntaxError",
    ),
    "cells_in_another_order": (lambda nb: nb | {"cells": nb["cells"][::-1]}, FULL, "right"),
    "cells_of_odd_types": (
        lambda nb: nb | {"cells": [None, 7, {"cell_type": 3, "source": 5, "id": [1], "metadata": 2}, *nb["cells"]]},
        FULL,
        "right",
    ),
    "source_as_list": (
        lambda nb: [c.update(source=c["source"].splitlines(keepends=True)) for c in nb["cells"]] and nb,
        FULL,
        "right",
    ),
    "null_bytes": (lambda nb: nb["cells"][2].update(source="def double(x):\0\n    return 2 * x") or nb, FULL, "right"),
    "lone_surrogate": (lambda nb: nb["cells"][2].update(source="x = '\udcff'") or nb, NO_1, "NameError"),
    "nbval_markers": (
        lambda nb: nb["cells"][2].update(source="# NBVAL_SKIP\ndef double(x):\n    return 1") or nb,
        NO_1,
        "wrong",
    ),
    "skip_tags": (
        lambda nb: [c.update(metadata=c["metadata"] | {"tags": ["nbval-skip"]}) for c in nb["cells"]] and nb,
        FULL,
        "right",
    ),
    "unknown_kernel": (
        lambda nb: nb["metadata"].update(kernelspec={"name": "nosuch", "display_name": "?"}) or nb,
        FULL,
        "right",
    ),
}
# Files that are no JSON notebook: bytes, points, word in the reason.
FILES = {
    "empty": (b"", "not JSON"),
    "truncated": (b'{"cells": [', "not JSON"),
    "latin_1": ('{"cells": ["é"]}'.encode("latin-1"), "UTF-8"),
    "a_list": (b"[]", "no JSON object"),
    "nested": (b"[" * 200_000, "nested too deeply"),
    "key_twice": (b'{"nbformat": 4, "cells": [], "cells": []}', "twice"),
    "huge": (b" " * 6_000_000, "larger than 5 MB"),
    "utf_16": ('{"cells": []}'.encode("utf-16"), "UTF-8"),
    "a_number": (b"7", "no JSON object"),
    "no_text": (bytes(range(256)), "UTF-8"),
    "null": (b"null", "no JSON object"),
}
NAMES = ("=cmd|x", "a b ü #1 [x] %20", "-rf", "名前", "a'b\"c;$(x)", "+1", "test::x")
"""Students' names that break paths, patterns, options and spreadsheets."""
# What stands before an answer to question 2 (a right one unless WRONG), the points, and a word of a reason.
CODE = {
    "reads_the_solutions": (
        "import os\nfound = [os.path.join(d, f) for d, _, fs in os.walk('/') for f in fs if f.endswith('.ipynb')\n"
        "         and 'exercises' not in d and 'site-packages' not in d]\n" + WRONG,
        NO_2,
        "",
    ),
    "reads_passwords": ("found = open('/etc/passwd').read()\n" + WRONG, NO_2, "Error"),
    "reads_its_checks": (
        "import glob\nfound = [open(f).read() for f in glob.glob('/tmp/**', recursive=True) if f.endswith('nb')]\n"
        + WRONG,
        NO_2,
        "wrong",
    ),
    "writes_to_the_library": (
        "import distgen_lab\nopen(distgen_lab.__file__, 'a').write('# mine')\n" + LIST,
        NO_2,
        "Error",
    ),
    "asks_the_network": (
        "import socket\nfound = socket.create_connection(('1.1.1.1', 53), 2)\n" + WRONG,
        NO_2,
        "unreachable",
    ),
    "is_not_root": ("import os\nos.setuid(0)\n" + LIST, NO_2, "PermissionError"),
    "reads_the_environment": (
        "import os\nfound = [v for k, v in os.environ.items() if 'TOKEN' in k or 'PYTEST' in k]\n" + WRONG,
        NO_2,
        "wrong",
    ),
    "shared_memory_left": (
        "from multiprocessing.shared_memory import SharedMemory\nkept = SharedMemory(create=True, size=10**6)\n" + LIST,
        FULL,
        "right",
    ),
    "shadows_the_kernel": (
        "open('ipykernel_launcher.py', 'w').write('raise SystemExit')\n"
        "open('nbformat.py', 'w').write('raise SystemExit')\n" + LIST,
        FULL,
        "right",
    ),
    "conftest_for_the_grader": (
        "found = []\nopen('conftest.py', 'w').write('raise SystemExit')\nopen('pytest.ini', 'w').write('[pytest]')\n"
        + WRONG,
        NO_2,
        "wrong",
    ),
    "kills_everyone": (
        "import os\nfor pid in range(2, 40000):\n    try:\n        os.kill(pid, 9) if pid != os.getpid() else 0\n"
        "    except OSError:\n        pass\n" + LIST,
        NO_2,
        "died",
    ),
    "leaves_children": (
        "import subprocess\nsubprocess.Popen(['sleep', '4242'], start_new_session=True)\n" + LIST,
        FULL,
        "right",
    ),
    "wants_all_memory": ("found = bytearray(2**36)\n" + WRONG, NO_2, "MemoryError"),
    "fills_the_disk": (
        "with open('big', 'wb') as file:\n    for _ in range(1000):\n        file.write(bytes(2**20))\n" + LIST,
        NO_2,
        "File too large",
    ),
    "fills_the_home": (
        "for k in range(100):\n    with open(f'big{k}', 'wb') as file:\n        file.write(bytes(2**25))\n" + LIST,
        NO_2,
        "No space left",
    ),
    "startup_file_for_others": (
        "import os\nos.makedirs('.ipython/profile_default/startup', exist_ok=True)\n"
        "open('.ipython/profile_default/startup/00.py', 'w').write('import builtins; builtins.sum = None')\n" + LIST,
        FULL,
        "right",
    ),
    "shadow_modules": ("open('random.py', 'w').write('raise SystemExit')\n" + LIST, FULL, "right"),
    "talks_to_the_worker": (
        'import os\nfor fd in range(3, 256):\n    try:\n        os.write(fd, b\'{"cell": "q9-2-hidden"}\')\n'
        "    except OSError:\n        pass\n" + "def squares(n):\n    return [7] * n\n",
        NO_2,
        "",
    ),
}
HOARD = """def parts(x):
    import os, time
    for _ in range(8):
        if not os.fork():
            kept = b"x" * 2**30
            time.sleep(60)
            os._exit(0)
    time.sleep(30)
    return {"half": x / 2, "name": "part"}"""
# Right answers to question 3, on real ranks or with many processes.
RANKS = {
    "torch_tensor": "import torch\ndef parts(x):\n"
    "    return {'half': torch.tensor(x / 2, dtype=torch.float64), 'name': 'part'}",
    "spawns_without_end": "import os\nmade = 0\ntry:\n    while made < 5000:\n"
    "        os.posix_spawn('/bin/sleep', ['sleep', '60'], {})\n        made += 1\nexcept OSError:\n    pass\n"
    "assert made < 600\ndef parts(x):\n    return {'half': x / 2, 'name': 'part'}",
    "gloo_inside": "def parts(x):\n    from distgen_lab import launch\n"
    "    halves = launch(lambda: x / 2, ranks=2).values\n    return {'half': halves[0], 'name': 'part'}",
    "mpi_inside": "def parts(x):\n    from distgen_lab import launch\n"
    "    halves = launch(lambda: x / 2, ranks=2, backend='mpi').values\n    return {'half': halves[1], 'name': 'part'}",
}

SPREADS = dict.fromkeys(("patched_encode", "nested_forgery", "report_of_another_type"), NO_2 | {"q9-3": "0"})
"""Answers to question 2 that break later questions of the same student: points they leave."""
