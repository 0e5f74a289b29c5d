"""Compile the device code (sdf_code, texture_code, shade_code) for a target, every float literal a float32.

numba types a literal such as 0.5 as float64, and one float64 operand makes the whole expression float64: about 30
times slower on a GPU. So the sources are parsed, float literals replaced by float32 constants, and every function
passed through the target's decorator. The files stay plain Python that can be read, linted and called without numba.
"""

import ast
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from procedural import layout

SOURCES = ("sdf_code.py", "texture_code.py", "shade_code.py")


class _Float32Literals(ast.NodeTransformer):
    """Replaces each float literal by a name bound to its float32 value."""

    def __init__(self) -> None:
        self.constants: dict[str, np.float32] = {}

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, float):
            return node
        name = f"_f32_{len(self.constants)}"
        self.constants[name] = np.float32(node.value)
        return ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node)


def build_device_code(jit: Callable) -> SimpleNamespace:
    """Decorate every function of SOURCES with `jit` and return them by name.

    Args:
        jit: takes a Python function, returns the compiled one (numba.njit(...) or numba.cuda.jit(device=True)).
    """
    namespace: dict = {"math": math, "np": np}
    namespace.update({key: value for key, value in vars(layout).items() if key.isupper()})
    functions = {}
    for source in SOURCES:
        path = Path(__file__).with_name(source)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        literals = _Float32Literals()
        tree = ast.fix_missing_locations(literals.visit(tree))
        # Constants of several files must not share names: give each file its own prefix through a fresh dict.
        local = dict(namespace)
        local.update(literals.constants)
        local["__name__"] = f"procedural.{path.stem}"
        for node in tree.body:
            code = compile(ast.Module(body=[node], type_ignores=[]), str(path), "exec")
            exec(code, local)  # our own source, beside this file
            local[node.name] = jit(local[node.name])
            functions[node.name] = namespace[node.name] = local[node.name]
    return SimpleNamespace(**functions)
