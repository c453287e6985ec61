"""Names that a test's script may use without importing them. Read by magcli, and inside the judge's sandbox."""

MODULES = {
    "np": "numpy", "numpy": "numpy",
    "math": "math", "re": "re", "itertools": "itertools", "collections": "collections", "string": "string",
    "json": "json", "random": "random", "functools": "functools", "heapq": "heapq", "bisect": "bisect", "copy": "copy",
    "operator": "operator", "datetime": "datetime", "fractions": "fractions", "decimal": "decimal",
    "statistics": "statistics", "typing": "typing", "os": "os", "sys": "sys",
}  # fmt: skip
"""Modules that a script may use without importing them."""
MEMBERS = {
    **dict.fromkeys(["Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"], "collections"),
    **dict.fromkeys(["isclose", "inf", "nan"], "math"),
    **dict.fromkeys(["allclose", "array_equal"], "numpy"),
    "Fraction": "fractions", "Decimal": "decimal", "reduce": "functools",
}  # fmt: skip
"""Names from modules that a script may use without importing them."""
OWN = ("approx", "pytest", "is_same_list", "is_same_tree", "list_node", "tree_node", "NoneType")
"""Names that this script supplies besides."""
