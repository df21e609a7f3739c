"""A package lists its public modules in `__all__`, and other packages import only those."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module

import grimp


def test_packages_list_what_others_import() -> None:
    graph = grimp.build_graph("sprite", "bridge", cache_dir=None)
    packages = {name.rpartition(".")[0] for name in graph.modules} - {"", "sprite", "bridge"}
    used = defaultdict[str, set[str]](set)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            package, _, name = imported.rpartition(".")
            if package in packages and imported not in packages and not f"{module}.".startswith(f"{package}."):
                used[package].add(name)
    modules = {name.rpartition(".") for name in graph.modules}
    for package in packages:
        listed = set(import_module(package).__all__)
        assert listed & {name for parent, _, name in modules if parent == package} == used[package], package
