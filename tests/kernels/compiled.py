"""Compiles the kernels without a GPU and prints how each reads memory: `python compiled.py`."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_for

from tucket.kernels.gpu import loops as kernels

TYPES = {
    **dict.fromkeys(("buffer", "shared_row_sums", "inverse_unit", "table", "into", "out", "scale"), "*fp64"),
    **dict.fromkeys(("column_weights", "row_weights", "targets", "gram", "core"), "*fp64"),
    "tolerance": "fp32",
    **dict.fromkeys(("chunk_edges", "piece_edges", "ends", "chunks", "tables", "orders", "offsets"), "*i64"),
    **dict.fromkeys(("rows", "indices", "listed", "group_of", "sorted_columns", "group_of_column"), "*i32"),
    **dict.fromkeys(("n_rows", "columns", "stride", "step", "tiles", "n_column_groups", "stripes", "longest"), "i32"),
    **dict.fromkeys(("rank", "sweeps"), "i32"),
}
ROWS = {"step": 1, "offsets": None, "UNIT": 1, "INT64_COLUMNS": False, "R": 4, "N": 1024}
SUMS = {**ROWS, "piece_edges": None, "sorted_columns": None, "shared_row_sums": None, "inverse_unit": None}
SUMS |= {"INT64_ROWS": False, "SIGNED": True, "MOMENTS": 0, "FAST_LOG2": False}
TABLE = dict.fromkeys(("core", "group_of_column", "column_weights"), None)
ONES = dict.fromkeys(("n_rows", "columns", "stride", "tiles"), 1)
LARGE = dict.fromkeys(("n_rows", "columns", "stride"), "i64")
PIECES = {"piece_edges": "*i64", "sorted_columns": "*i32"}
EVEN = ("columns", "stride")

CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "float32": ("sum_rows", {"x": "*fp32", **SUMS, "SUM_TYPE": 2}, EVEN),
    "float32, units of 8": ("sum_rows", {"x": "*fp32", **SUMS, "SUM_TYPE": 2, "UNIT": 8}, ()),
    "float32, gaps": ("sum_rows", {"x": "*fp32", **SUMS, "SUM_TYPE": 2, "UNIT": 16, "offsets": "*i64"}, ()),
    "float32, odd": ("sum_rows", {"x": "*fp32", **SUMS, "SUM_TYPE": 2}, ()),
    "float32, pieces": ("sum_rows", {"x": "*fp32", **SUMS, **PIECES, "sorted_columns": None, "SUM_TYPE": 2}, ()),
    "float32, listed pieces": ("sum_rows", {"x": "*fp32", **SUMS, **PIECES, "SUM_TYPE": 2}, ()),
    "float32, in batches": ("sum_rows", {"x": "*fp32", **SUMS, "SUM_TYPE": 2, "shared_row_sums": "*fp64"}, EVEN),
    "float32, one": ("sum_rows", {"x": "*fp32", **SUMS, **ONES, "SUM_TYPE": 2}, ()),
    "float32, large": (
        "sum_rows",
        {"x": "*fp32", **SUMS, **LARGE, "SUM_TYPE": 2, "INT64_COLUMNS": True, "INT64_ROWS": True},
        (),
    ),
    "float32, logarithms": (
        "sum_rows",
        {"x": "*fp32", **SUMS, "SUM_TYPE": 2, "inverse_unit": "*fp64", "MOMENTS": 1},
        EVEN,
    ),
    "float32, fast logarithms": (
        "sum_rows",
        {"x": "*fp32", **SUMS, "SUM_TYPE": 2, "inverse_unit": "*fp64", "MOMENTS": 1, "FAST_LOG2": True},
        EVEN,
    ),
    "float16": ("sum_rows", {"x": "*fp16", **SUMS, "SUM_TYPE": 2, "N": 2048}, EVEN),
    "bfloat16": ("sum_rows", {"x": "*bf16", **SUMS, "SUM_TYPE": 2, "N": 2048}, EVEN),
    "float64": ("sum_rows", {"x": "*fp64", **SUMS, "SUM_TYPE": 0, "R": 2}, EVEN),
    "float64, moments": (
        "sum_rows",
        {"x": "*fp64", **SUMS, "SUM_TYPE": 0, "R": 1, "inverse_unit": "*fp64", "MOMENTS": 2},
        EVEN,
    ),
    "uint8": ("sum_rows", {"x": "*u8", **SUMS, "SUM_TYPE": 1, "SIGNED": False, "N": 512}, EVEN),
    "int64": ("sum_rows", {"x": "*i64", **SUMS, "SUM_TYPE": 0}, EVEN),
    "compare": ("compare_rows", {"x": "*fp32", **ROWS, "INT64_ROWS": False, "SIGNED": True}, EVEN),
    "compare, one": (
        "compare_rows",
        {"x": "*fp32", **ROWS, **ONES, "n_column_groups": 1, "INT64_ROWS": True, "SIGNED": True},
        (),
    ),
    "expand": ("expand_core", {"N": 512}, ()),
    "write": ("write_rows", {"out": "*fp32", **ROWS, **TABLE}, EVEN),
    "write, large": ("write_rows", {"out": "*fp32", **ROWS, **TABLE, "UNIT": 8, "INT64_COLUMNS": True}, ()),
    "write, no table": ("write_rows", {"out": "*fp32", **ROWS, "table": None}, EVEN),
    "write, one": ("write_rows", {"out": "*fp32", **ROWS, **ONES, "n_column_groups": 1, "table": None}, ()),
    "sort": ("sort_indices", {"D": 3, "C": 512}, ()),
    "sort, no modes": ("sort_indices", {"D": 0, "C": 512}, ()),
    "chunks": ("add_chunks", {"G": 4, "N": 128, "LISTED": True}, ()),
    "chunks of one group": ("add_chunks", {"ends": "i32", "G": 512, "N": 8, "LISTED": False}, ()),
    "pieces": ("sum_pieces", {"pieces": "i32", "P": 4, "N": 128}, ()),
    "adjacent pieces": ("sum_pieces", {"pieces": "i32", "listed": None, "longest": 1, "P": 512, "N": 1}, ()),
    "coordinate descent": ("coordinate_descent", {"rows": "*fp64", "N": 64}, ()),
}


def loads(name: str, given: dict[str, Any], multiples: tuple[str, ...]) -> dict[str, int]:
    """Compile a kernel, and count its instructions that read memory, by kind.

    What is given is a type, or a value; the numbers of `multiples` are multiples of 16, as all pointers are.
    """
    kernel = getattr(kernels, name)
    signature, constants, known = {}, {}, {}
    for place, argument in enumerate(kernel.arg_names):
        kind = given.get(argument, TYPES.get(argument))
        if not isinstance(kind, str):
            signature[argument], constants[(place,)] = "constexpr", kind
            continue
        signature[argument] = kind
        if kind.startswith("*") or argument in multiples:
            known[(place,)] = [["tt.divisibility", 16]]
    made = compile_for(ASTSource(kernel, signature, constants, known), target=GPUTarget("cuda", 90, 32))
    return dict(Counter(re.findall(r"ld\.global[.\w]*", made.asm["ptx"])))


if __name__ == "__main__":
    print(json.dumps({case: loads(*parts) for case, parts in CASES.items()}))
