"""What LeetCode supplies to a ``Solution``: common imports, linked lists and trees. Runs inside the sandbox.

Only names that a program mentions are imported, as importing takes longer than most tests.
"""

from __future__ import annotations

MODULES = {
    "typing": "Any Callable DefaultDict Deque Dict FrozenSet Generator Generic Iterable Iterator List Literal Mapping "
    "NamedTuple Optional Sequence Set Tuple Type TypeVar Union",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "functools": "cache cmp_to_key lru_cache partial reduce wraps",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle dropwhile groupby islice "
    "pairwise permutations product repeat starmap takewhile tee zip_longest",
    "math": "acos asin atan atan2 ceil comb cos dist exp fabs factorial floor fmod gcd hypot inf isqrt lcm log log10 "
    "log2 perm pi prod sin sqrt tan trunc",
    "operator": "add and_ itemgetter mul or_ sub xor",
    "string": "ascii_lowercase ascii_uppercase ascii_letters digits",
    "random": "choice randint randrange shuffle",
    "dataclasses": "dataclass",
    "": "collections copy datetime functools heapq itertools math operator random re string sys typing",
}
MAX_NODES = 1_000_000


class ListNode:
    """A node of a singly linked list."""

    def __init__(self, val: object = 0, next: ListNode | None = None) -> None:
        self.val, self.next = val, next


class TreeNode:
    """A node of a binary tree."""

    def __init__(self, val: object = 0, left: TreeNode | None = None, right: TreeNode | None = None) -> None:
        self.val = val
        self.left = left
        self.right = right


def list_node(values: list[object]) -> ListNode | None:
    """The head of a linked list of the values."""
    # From the end, since a node needs the next one.
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head


def list_values(head: ListNode | None) -> list[object]:
    """The values of a linked list. Raises ValueError if it is too long or cyclic."""
    values: list[object] = []
    while head is not None:
        values.append(head.val)
        head = head.next
        if len(values) > MAX_NODES:
            raise ValueError("the list does not end")
    return values


def tree_node(values: list[object]) -> TreeNode | None:
    """The root of a tree, given level by level with None for a missing child."""
    if not values or values[0] is None:
        return None
    root = TreeNode(values[0])
    level, left = [root], iter(values[1:])
    # The loop goes on with the children that it appends.
    for node in level:
        for side in ("left", "right"):
            value = next(left, None)
            if value is not None:
                child = TreeNode(value)
                setattr(node, side, child)
                level.append(child)
    return root


def tree_values(root: TreeNode | None) -> list[object]:
    """The values of a tree, level by level with None for a missing child, none at the end.

    Raises ValueError if it is too large or cyclic.
    """
    values: list[object] = []
    level = [root]
    # As above, also with the missing children.
    for node in level:
        values.append(None if node is None else node.val)
        level += [] if node is None else [node.left, node.right]
        if len(values) > MAX_NODES:
            raise ValueError("the tree does not end")
    while values and values[-1] is None:
        values.pop()
    return values


def bind(names: set[str], space: dict[str, object]) -> None:
    """Put those of the names that are known into a module's namespace."""
    for module, members in MODULES.items():
        for name in names.intersection(members.split()):
            # The last entry has modules themselves.
            space[name] = getattr(__import__(module), name) if module else __import__(name)
    for helper in (ListNode, TreeNode, list_node, list_values, tree_node, tree_values):
        if helper.__name__ in names:
            space[helper.__name__] = helper
