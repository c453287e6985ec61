"""Names that a test's script may use without importing them. Read by magcli, and inside the judge's sandbox."""

_MODULES = (
    "numpy", "math", "re", "itertools", "collections", "string", "json", "random", "functools", "heapq", "bisect",
    "copy", "operator", "datetime", "fractions", "decimal", "statistics", "typing", "os", "sys",
)  # fmt: skip
MODULES = {"np": "numpy", **{name: name for name in _MODULES}}
"""Modules that a script may use without importing them, by the names that they have in it."""
MEMBERS = {
    **dict.fromkeys(["Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"], "collections"),
    **dict.fromkeys(["isclose", "inf", "nan"], "math"),
    **dict.fromkeys(["allclose", "array_equal"], "numpy"),
    "Fraction": "fractions", "Decimal": "decimal", "reduce": "functools",
}  # fmt: skip
"""Names from modules that a script may use without importing them."""
OWN = ("approx", "pytest", "is_same_list", "is_same_tree", "list_node", "tree_node", "NoneType")
"""Names that this script supplies besides."""
