# SPDX-License-Identifier: Apache-2.0
"""Imports point down the layers that CONTRIBUTING.md draws, never in a circle, and load nothing heavy on the way."""

import ast
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from genmonitor.cli.main import COMMANDS

LAYERS = [
    {
        "_formatting",
        "_html",
        "_io",
        "_manifest",
        "_place_names",
        "_processes",
        "_stop",
        "_validation",
        "training_state",
    },
    {"linalg"},
    {"kernels", "partition"},
    {"functional"},
    {"metrics"},
    {"distributed"},
    {"encoders"},
    {"plotting"},
    {"images"},
    {"findings"},
    {"evaluation"},
    {"report"},
    {"loggers"},
    {"monitoring"},
    {""},  # genmonitor/__init__.py: what stands below it imports from the module that it means
    {"cli", "tensorboard_plugin", "__main__"},
    {"callbacks"},
]
"""From the bottom; what stands in one layer may import what stands in the same, but not in a circle."""

EXCEPTIONS = {
    ("genmonitor.cli.replay", "genmonitor.callbacks.replay"): "a run is replayed by a Trainer",
    ("genmonitor.cli.sweep", "genmonitor.callbacks.sweep"): "a Trainer sets up module and data",
    ("genmonitor.metrics.cka", "genmonitor.plotting.style"): "torchmetrics' interface has metrics plot themselves",
}
"""Arrows that may point up, inside functions only, each with its reason."""


class Arrow(NamedTuple):
    importer: str
    imported: str
    in_function: bool = False
    for_types: bool = False


def installed() -> dict[str, str]:
    """Return the source of each module by its name, `__init__` too, wherever the package was imported from."""
    specs = {name: importlib.util.find_spec(name) for name in ("genmonitor", "genmonitor.callbacks")}
    folders = {name: Path(spec.submodule_search_locations[0]) for name, spec in specs.items()}
    return {
        ".".join([package, *path.relative_to(folder).with_suffix("").parts]): path.read_text(encoding="utf-8")
        for package, folder in folders.items()
        for path in sorted(folder.rglob("*.py"))
    }


def named(node: ast.AST) -> Iterator[str]:
    """Yield what a statement or a call imports, each name with the module that it may be."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module"):
        yield from (word.value for word in node.args if isinstance(word, ast.Constant))


def inside(tops: Iterator[ast.AST]) -> set[int]:
    return {id(node) for top in tops for node in ast.walk(top)}


@functools.cache  # most tests change one module of all
def imports(source: str) -> list[tuple[str, bool, bool]]:
    """Return each name that a module imports, and whether inside a function, and whether for types alone."""
    nodes = list(ast.walk(ast.parse(source)))
    in_functions = inside(node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    for_types = inside(node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return [(name, id(node) in in_functions, id(node) in for_types) for node in nodes for name in named(node)]


def arrows(sources: dict[str, str]) -> set[Arrow]:
    """Return all imports of one module of the package by another, those inside functions and for types among them."""
    modules, found = {name.removesuffix(".__init__") for name in sources}, set()
    for file, source in sources.items():
        importer, package = file.removesuffix(".__init__"), file.rpartition(".")[0]
        for written, *where in imports(source):
            name = importlib.util.resolve_name(written, package)
            # a name that is no module is defined in the one before its last dot
            imported = name if name in modules else name.rpartition(".")[0]
            if imported in modules and imported != importer:
                found.add(Arrow(importer, imported, *where))
    return found


def layer(module: str) -> int:
    part = module.removeprefix("genmonitor").removeprefix(".")
    place = part
    while True:
        for number, parts in enumerate(LAYERS):
            if place in parts:
                return number
        if "." not in place:
            raise LookupError(f"{module} stands in no layer: give {part!r} a place in LAYERS and in CONTRIBUTING.md.")
        place = place.rpartition(".")[0]


def upward(found: set[Arrow]) -> set[tuple[str, str]]:
    """Return the imports of a higher layer by a lower one."""
    return {
        (arrow.importer, arrow.imported)
        for arrow in found
        if layer(arrow.importer) < layer(arrow.imported)
        and not (arrow.in_function and (arrow.importer, arrow.imported) in EXCEPTIONS)
    }


def circle(found: set[Arrow]) -> list[str]:
    """Return modules that import each other in a circle, the first one again at the end, or nothing.

    What is imported for types alone is not imported when the program runs, and closes no circle.
    """
    graph: dict[str, set[str]] = {}
    for arrow in found:
        if not arrow.for_types and (arrow.importer, arrow.imported) not in EXCEPTIONS:
            graph.setdefault(arrow.importer, set()).add(arrow.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def child(package: str, module: str) -> str | None:
    """Return what of a package a module is or lies in; None if it lies elsewhere or is the package itself."""
    return module[len(package) + 1 :].split(".")[0] if module.startswith(f"{package}.") else None


def within(package: str, found: set[Arrow]) -> set[Arrow]:
    """Return the imports among what lies directly in a package: each of its folders counts as one."""
    out = set()
    for arrow in found:
        importer, imported = child(package, arrow.importer), child(package, arrow.imported)
        if importer and imported and importer != imported and (arrow.importer, arrow.imported) not in EXCEPTIONS:
            out.add(arrow._replace(importer=importer, imported=imported))
    return out


@pytest.fixture(scope="module")
def tree() -> set[Arrow]:
    return arrows(installed())


def test_imports_point_down(tree):
    assert upward(tree) == set()


def test_imports_make_no_circle(tree):
    assert circle(tree) == []


def test_folders_make_no_circle_at_any_depth(tree):
    packages = {name.removesuffix(".__init__") for name in installed() if name.endswith("__init__")}
    assert len(packages) > 15
    circles = {package: circle(within(package, tree)) for package in packages}
    assert {package: found for package, found in circles.items() if found} == {}


def test_a_circle_of_folders_is_found():
    found = {Arrow("genmonitor.a.x", "genmonitor.b.y"), Arrow("genmonitor.b.z", "genmonitor.a.w")}
    assert circle(found) == []
    assert set(circle(within("genmonitor", found))) == {"a", "b"}
    assert circle(within("genmonitor.a", found)) == []


def test_every_exception_is_needed(tree):
    assert set(EXCEPTIONS) <= {(arrow.importer, arrow.imported) for arrow in tree}


def names_lightning(source: str) -> bool:
    """Return True if a module imports Lightning anywhere, in functions too."""
    nodes = [*ast.walk(ast.parse(source))]
    named = [x.name for node in nodes if isinstance(node, ast.Import) for x in node.names]
    named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return any(name.split(".")[0] in ("lightning", "pytorch_lightning") for name in named)


def test_only_callbacks_and_commands_import_lightning():
    found = {name for name, source in installed().items() if names_lightning(source)}
    above = tuple(f"genmonitor.{part}" for part in ("callbacks", "cli"))
    assert {name for name in found if not name.startswith(above)} == set()
    assert any(name.startswith("genmonitor.callbacks") for name in found)


@pytest.mark.parametrize(
    ("module", "statement", "arrow"),
    [
        ("linalg.chunking", "import genmonitor.metrics", ("genmonitor.linalg.chunking", "genmonitor.metrics")),
        ("_io", "from genmonitor.linalg import chunking", ("genmonitor._io", "genmonitor.linalg.chunking")),
        (
            "report.page",
            "if TYPE_CHECKING:\n    from genmonitor.callbacks import GenerativeMonitor",
            ("genmonitor.report.page", "genmonitor.callbacks"),
        ),
        (
            "cli.replay",
            "from genmonitor.callbacks.replay import replay",  # allowed where a function does it
            ("genmonitor.cli.replay", "genmonitor.callbacks.replay"),
        ),
    ],
)
def test_an_import_that_points_up_is_found(tree, module, statement, arrow):
    sources = installed()
    sources[f"genmonitor.{module}"] += f"\n\n{statement}\n"
    assert upward(arrows(sources) - tree) == {arrow}


def test_a_circle_is_found(tree):
    sources = installed()
    for one, other in (("first", "second"), ("second", "third"), ("third", "first")):
        sources[f"genmonitor.linalg.{one}"] = f"def late():\n    from genmonitor.linalg.{other} import name\n"
    new = arrows(sources) - tree
    assert upward(new) == set()
    assert sorted(circle(new)[1:]) == [f"genmonitor.linalg.{name}" for name in ("first", "second", "third")]


def test_a_module_without_a_layer_is_found():
    sources = installed() | {"genmonitor.misplaced": "from genmonitor.linalg import chunking\n"}
    with pytest.raises(LookupError, match="'misplaced' a place in LAYERS"):
        upward(arrows(sources))


def loads(statements: str, after: str = "") -> set[str]:
    """Return the packages that statements newly load in a fresh interpreter, the standard library left out."""
    code = f"import sys\n{after}\nbefore = set(sys.modules)\n{statements}\nprint('loads', *set(sys.modules) - before)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    last = out.splitlines()[-1].split()
    assert last[0] == "loads"
    return {name.split(".")[0] for name in last[1:]} - sys.stdlib_module_names


def test_importing_genmonitor_loads_nothing_else():
    assert loads("import genmonitor") == {"genmonitor"}


def test_the_help_of_the_command_line_loads_nothing_else():
    helped = "try: main(['--help'])\nexcept SystemExit as stop: assert stop.code == 0"
    assert loads(f"from genmonitor.cli import main\n{helped}") == {"genmonitor"}


def test_functions_load_nothing_beyond_torch():
    packages = "genmonitor.functional, genmonitor.kernels, genmonitor.linalg, genmonitor.partition"
    assert loads(f"import {packages}", after="import torch") == {"genmonitor"}


def test_public_classes_load_nothing_beyond_torchmetrics():
    alone = "name for name in genmonitor.__all__ if name not in ('compare', 'diagnose', 'LoopMonitor')"
    classes = f"import genmonitor\n[getattr(genmonitor, name) for name in [{alone}]]"
    assert loads(classes, after="import torch, torchmetrics") == {"genmonitor"}


@pytest.mark.slow
@pytest.mark.parametrize("names", ["compare, diagnose", "LoopMonitor"])
def test_an_evaluation_loads_nothing_else_but_what_draws(names):
    """Not even torchmetrics, which takes longer than torch."""
    found = loads(f"from genmonitor import {names}", after="import torch, matplotlib.figure")
    assert not found & {"torchmetrics", "transformers", "scipy", "sklearn", "lightning"}


@pytest.mark.slow
def test_an_evaluation_and_the_command_line_need_no_lightning():
    doors = "evaluation, genmonitor.report, genmonitor.cli"
    commands = ", ".join(f"genmonitor.cli.{name}" for name in COMMANDS)
    assert not {"lightning", "pytorch_lightning"} & loads(f"import genmonitor.{doors}, {commands}")


@pytest.mark.slow
def test_a_monitor_of_plain_loops_needs_no_lightning():
    assert not {"lightning", "pytorch_lightning"} & loads("from genmonitor import LoopMonitor")


@pytest.mark.slow
def test_what_is_loaded_would_be_noticed():
    assert {"genmonitor", "lightning", "matplotlib", "torch", "torchmetrics"} <= loads("import genmonitor.callbacks")
