"""Rewrites a test's script: each comparison becomes a call that knows which sides have values of the program, and
asserts, loops, ``try`` and ``with`` note whether they were reached (``magcli.verify.code.reaching``).

Runs inside the judge's sandbox. Which names have such values is derived from the syntax: what is assigned from, looped
over, passed to or returned by an expression that mentions a name of the problem.
"""

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

CLOSE = frozenset(("allclose", "isclose", "array_equiv"))
"""Functions of numpy that repeat the smaller of two arrays, besides those of ``numpy.testing``."""
OF_ALL = frozenset(("all", "any", "sum", "max", "min", "norm"))
"""Functions whose value for no elements says nothing of the program."""
RAISING = ("raises", "assertRaises", "assertRaisesRegex")
"""Functions whose first argument is an expected exception."""
EXPECTING = (*RAISING, "warns", "deprecated_call")
"""Contexts that expect an exception."""


def rewritten(tree: ast.Module, problem_names: "Iterable[str]") -> ast.Module:
    """The script with calls of the names of ``referee.WATCHED``."""
    changed: ast.Module = Watched(names_of_program(tree, problem_names)).visit(tree)
    return ast.fix_missing_locations(changed)


def must_assert(tree: ast.Module) -> bool:
    """Whether the script has asserts of more than a constant, one of which must be reached."""
    return any(isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant) for node in ast.walk(tree))


def names_class(name: str) -> bool:
    """Whether a name is that of a class: with a capital at first, and unlike a constant without an underscore."""
    return name[:1].isupper() and "_" not in name


def calls_of(function: str, *arguments: ast.expr) -> ast.Call:
    """A call of a watching function."""
    return ast.Call(ast.Name(f"__{function}__", ast.Load()), list(arguments), [])


def statement(function: str, *arguments: ast.expr) -> ast.Expr:
    """The same as a statement."""
    return ast.Expr(calls_of(function, *arguments))


def within(function: str, body: "list[ast.stmt]") -> ast.With:
    """Statements in the context of a watching function."""
    return ast.With([ast.withitem(calls_of(function))], body)


class Watched(ast.NodeTransformer):
    """Replaces comparisons and what may skip asserts; ``of_program`` are the names that have values of the program."""

    def __init__(self, of_program: "set[str]") -> None:
        self._of_program, self._count = of_program, 0
        # How many conditions of asserts, and bodies of ``try``, are around the node that is visited.
        self._conditions, self._tries = 0, 0

    # ---- asserts ----

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """The assert, whose test is marked as a single comparison, an absence or another condition."""
        kind = "condition"
        match node.test:
            case ast.Compare(_, [_]):
                kind = "comparison"
            case ast.UnaryOp(ast.Not(), operand) if is_part_of(operand, self._of_program):
                kind = "absence"
        self._conditions += 1
        node.test = calls_of(kind, self.visit(node.test))
        self._conditions -= 1
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """What a helper function returns is asserted."""
        self._conditions += 1
        self.generic_visit(node)
        self._conditions -= 1
        return node

    def visit_Raise(self, node: ast.Raise) -> "ast.AST | list[ast.stmt]":
        """An AssertionError that the script raises is an assert that fails."""
        self.generic_visit(node)
        if node.exc is not None and name_of(node.exc) == "AssertionError":
            return [statement("condition", ast.Constant(False)), node]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """A call of an assertion of a library counts as an assert."""
        asserts = is_assertion(node)
        is_of_suite = bool(checked_name(node.value))
        self._conditions += asserts
        self.generic_visit(node)
        self._conditions -= asserts
        # A failing assertion of a suite ends its test anyway, unless the test may catch it.
        if asserts and (self._tries or not is_of_suite):
            return within("assertion", [node])
        return node

    # ---- what may skip them ----

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """Handlers note that they were entered, and ``AssertionError`` may be caught by its name."""
        # Before the body is rewritten, which hides its asserts.
        may_skip, expects = has_asserts(node.body), has_failures([*node.body, *node.orelse])
        catches = any(names_assertion_error(handler.type) for handler in node.handlers)
        self._tries += 1
        self.generic_visit(node)
        self._tries -= 1
        for handler in node.handlers:
            # A body that fails in any case, as by "assert False" at its end, expects an exception.
            if expects:
                handler.body.insert(0, statement("expected"))
            asserts = names_assertion_error(handler.type) or has_asserts(handler.body, failures=True)
            if may_skip and not asserts:
                handler.body.insert(0, statement("cut"))
        if catches:
            node.body = [within("lenient", node.body)]
        return node

    def visit_With(self, node: ast.With) -> "ast.AST | list[ast.stmt]":
        """Asserts must not be skipped unless the context expects an exception."""
        contexts = [item.context_expr for item in node.items]
        expects = any((checked_name(context) or name_of(context)) in EXPECTING for context in contexts)
        catches = any(names_assertion_error(context) for context in contexts)
        may_skip = has_asserts(node.body) and not expects
        self.generic_visit(node)
        if catches:
            node.body = [within("lenient", node.body)]
        if not may_skip:
            return node
        # The context has swallowed an exception if "after" is reached without "end".
        site = self._site()
        node.body.append(statement("end", site))
        return [node, statement("after", site)]

    def visit_For(self, node: ast.For) -> ast.For:
        """A loop with asserts over elements of the program must have one."""
        # How many elements a list of the script's own has says nothing of the program.
        looks = self._is_own(node.iter) and has_asserts(node.body, failures=True)
        self.generic_visit(node)
        if looks:
            node.iter = calls_of("looped", self._site(), node.iter)
        return node

    # ---- calls ----

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Calls whose value for no elements says nothing, and templates of the program."""
        name = name_of(node)
        # Of each argument, before it is rewritten, whether it has values of the program.
        own = [self._is_own(part) for part in node.args]
        is_mixed = any(own) and not all(own)
        is_method = isinstance(node.func, ast.Attribute)
        own_receiver = is_method and self._is_own(node.func.value)  # type: ignore[attr-defined]
        if name in OF_ALL and self._conditions:
            self._look(node)
        elif is_method and name in ("issubset", "issuperset", "startswith", "endswith"):
            self._look_at_subject(node)
        self.generic_visit(node)
        compares = name in CLOSE or name.startswith("assert_")
        match node:
            # With the flags the watching zip knows which iterables may end first.
            case ast.Call(ast.Name("zip"), args, []) if is_mixed and not has_stars(args):
                flags = ast.Tuple([ast.Constant(flag) for flag in own], ast.Load())
                return calls_of("zipped", flags, *args)
            case ast.Call(_, [_, _, *_]) if compares and own[0] != own[1]:
                node.args = [node.func, ast.Constant(own[0]), *node.args]
                node.func = ast.Name("__close__", ast.Load())
            # str.format(f(1), x) and f(1).format(x)
            case ast.Call(ast.Attribute(ast.Name("str"), "format" | "format_map"), [template, *_]) if own[0]:
                node.args[0] = calls_of("template", template)
            case ast.Call(ast.Attribute(receiver, "format" | "format_map")) if own_receiver:
                node.func.value = calls_of("template", receiver)  # type: ignore[attr-defined]
        return node

    def _look(self, node: ast.Call) -> None:
        """Have ``all`` or ``any`` note whether there was an element of the program."""
        match node:
            case ast.Call(_, [ast.GeneratorExp(_, generators) | ast.ListComp(_, generators)]):
                # all(x > 0 for x in f(1))
                for generator in generators:
                    if self._is_own(generator.iter):
                        generator.iter = calls_of("looped", self._site(), generator.iter)
            # all(f(1)), then np.all(f(1)), then f(1).all()
            case ast.Call(ast.Name(), [argument]) if self._is_own(argument):
                node.args = [calls_of("looped", self._site(), argument)]
            case ast.Call(ast.Attribute(), [argument, *_]) if self._is_own(argument):
                node.args[0] = calls_of("filled", self._site(), argument)
            case ast.Call(ast.Attribute(receiver)) if self._is_own(receiver):
                node.func.value = calls_of("filled", self._site(), receiver)  # type: ignore[attr-defined]

    def _look_at_subject(self, node: ast.Call) -> None:
        """Have a set or text of the program that must be a part of an expected one note whether it is empty."""
        match node:
            # f(1).issubset(expected), and the reverse for the others: expected.issuperset(f(1))
            case ast.Call(ast.Attribute(receiver, "issubset"), [argument]):
                if self._is_own(receiver) and not self._is_own(argument):
                    node.func.value = calls_of("filled", self._site(), receiver)  # type: ignore[attr-defined]
            case ast.Call(ast.Attribute(receiver), [argument]):
                if self._is_own(argument) and not self._is_own(receiver):
                    node.args = [calls_of("filled", self._site(), argument)]

    def _site(self) -> ast.expr:
        """A number of its own for a site in the script."""
        self._count += 1
        return ast.Constant(self._count)

    def _is_own(self, node: ast.AST) -> bool:
        """Whether an expression has values of the program."""
        return mentions(node, self._of_program)

    # ---- comparisons ----

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Calls of ``__compare__``; of a chain, joined by ``and``, with each operand evaluated once."""
        own = [self._is_own(side) for side in (node.left, *node.comparators)]
        self.generic_visit(node)
        left = node.left
        parts: list[ast.expr] = []
        last = len(node.ops) - 1
        for number, (sign, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            following: ast.expr = right
            if number < last:
                # An operand between two signs is kept under a name for the next comparison.
                self._count += 1
                name = f"__compared_{self._count}"
                right = ast.NamedExpr(ast.Name(name, ast.Store()), right)
                following = ast.Name(name, ast.Load())
            operation = ast.Constant(type(sign).__name__)
            flags = map(ast.Constant, own[number : number + 2])
            parts.append(calls_of("compare", operation, left, right, *flags))
            left = following
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)


def is_part_of(node: ast.expr, of_program: "set[str]") -> bool:
    """Whether an expression is a value of the program or a part of it, not what a function of a library makes of it."""
    match node:
        case ast.Name(name):
            return name in of_program
        case ast.Attribute(inner) | ast.Subscript(inner) | ast.Call(inner):
            return is_part_of(inner, of_program)
    return False


def has_stars(nodes: "Sequence[ast.expr]") -> bool:
    """Whether arguments are unpacked."""
    return any(isinstance(node, ast.Starred) for node in nodes)


def name_of(node: "ast.AST | None") -> str:
    """The last name of a function or of what is called; empty if there is none."""
    match node:
        case ast.Call(function):
            return name_of(function)
        case ast.Name(name) | ast.Attribute(_, name):
            return name
    return ""


def checked_name(node: ast.AST) -> str:
    """The name of an assertion of a suite, as ``magcli.verify.code.suite_rewriting`` calls it; empty for others."""
    match node:
        case ast.Call(ast.Call(ast.Name("__checked__"), [_, ast.Constant(str(name)), *_])):
            return name
    return ""


def names_assertion_error(node: "ast.AST | None") -> bool:
    """Whether a handler's type, or a context, names ``AssertionError``."""
    return node is not None and mentions(node, {"AssertionError"})


def is_assertion(node: ast.AST) -> bool:
    """Whether a statement calls an assertion of a library, such as ``np.testing.assert_allclose``."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    name = checked_name(node.value) or name_of(node.value)
    return name.startswith("assert") and name not in EXPECTING


def has_asserts(nodes: "Sequence[ast.stmt]", *, failures: bool = False) -> bool:
    """Whether statements assert more than a constant, outside of functions that they define.

    ``failures``: or fail in any case.
    """
    for node in statements(nodes):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if is_assertion(node):
            return True
    return failures and has_failures(nodes)


def has_failures(nodes: "Sequence[ast.stmt]") -> bool:
    """Whether statements fail in any case: ``assert False``, ``raise``, ``pytest.fail()``."""
    for node in statements(nodes):
        match node:
            case ast.Assert(ast.Constant()) | ast.Raise():
                return True
            case ast.Expr(value) if name_of(value) == "fail":
                return True
    return False


def statements(nodes: "Iterable[ast.AST]") -> "list[ast.AST]":
    """Statements and those within them, without the bodies of functions and classes."""
    every: list[ast.AST] = []
    # Last in, first out: the order does not matter to the callers.
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        every.append(node)
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
                waiting.append(part)
    return every


def mentions(node: ast.AST, names: "Container[str]") -> bool:
    """Whether one of the names occurs in a syntax tree."""
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def exceptions_in(tree: ast.AST) -> "list[ast.expr]":
    """The expressions of a script that must be exceptions."""
    kinds: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(ast.expr() as kind):
                kinds.append(kind)
            case ast.Call(function, [kind, *_]) if name_of(function) in RAISING:
                kinds.append(kind)
    return kinds


def names_in(node: ast.AST) -> "list[str]":
    """The names in a syntax tree."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def called_functions(node: ast.AST) -> "set[str]":
    """The names that are called as such in a syntax tree, not as attributes."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def names_in_all(nodes: "Iterable[ast.AST]") -> "list[str]":
    """The names in several syntax trees."""
    names: list[str] = []
    for node in nodes:
        names += names_in(node)
    return names


BINDING = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.FunctionDef, ast.Call,
    ast.Expr, ast.With,
)  # fmt: skip
"""The kinds of nodes that bind names, or pass values to functions that do."""


def names_of_program(tree: ast.Module, problem_names: "Iterable[str]") -> "set[str]":
    """The names of a script that may have values of the program."""
    reached = set(problem_names)
    binding = [node for node in ast.walk(tree) if isinstance(node, BINDING)]
    functions = {node.name: node for node in binding if isinstance(node, ast.FunctionDef)}
    before = -1
    # Each round reaches the names that are bound to those of the round before.
    while len(reached) > before:
        before = len(reached)
        for node in binding:
            reached.update(bound_to_program(node, reached, functions))
    return reached


def bound_to_program(node: ast.AST, names: "set[str]", functions: "dict[str, ast.FunctionDef]") -> "list[str]":
    """The names that a node binds to a value that mentions ``names``."""
    match node:
        case ast.Assign(targets, value) if mentions(value, names):
            return names_in_all(targets)
        case ast.AugAssign(target, _, value) | ast.NamedExpr(target, value) | ast.AnnAssign(target, _, value):
            return names_in(target) if value is not None and mentions(value, names) else []
        case ast.For(target, value) | ast.comprehension(target, value) if mentions(value, names):
            return names_in(target)
        # items.append(f(1))
        case ast.Expr(ast.Call(ast.Attribute(changed), args)) if any(mentions(part, names) for part in args):
            return names_in(changed)
        case ast.With(items) if any(mentions(item.context_expr, names) for item in items):
            return names_in_all(item.optional_vars for item in items if item.optional_vars)
        # A decorator with values of the program, such as ``parametrize``, passes them on.
        case ast.FunctionDef(name, signature) if any(mentions(part, names) for part in node.decorator_list):
            return [name, *parameters(signature)]
        case ast.FunctionDef(name) if any(mentions(part, names) for part in node.body):
            return [name]
        case ast.Call(function, args, keywords):
            every = [*args, *(word.value for word in keywords)]
            # The program may call a function that it gets.
            if mentions(function, names) and any(is_callback(part, functions) for part in every):
                return parameters_of_callbacks(every, functions)
            # A function of the script is called with what it gets here.
            match function:
                case ast.Name(name) if name in functions:
                    return parameters_of_program(functions[name].args, args, keywords, names)
                case ast.Lambda(signature):
                    return parameters_of_program(signature, args, keywords, names)
    return []


def is_callback(node: ast.expr, functions: "dict[str, ast.FunctionDef]") -> bool:
    """Whether an argument is a function of the script."""
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Name) and node.id in functions)


def parameters_of_callbacks(args: "list[ast.expr]", functions: "dict[str, ast.FunctionDef]") -> "list[str]":
    """The parameters of functions of the script that the program may call."""
    names: list[str] = []
    for node in args:
        if isinstance(node, ast.Lambda):
            names.extend(parameters(node.args))
        elif isinstance(node, ast.Name) and node.id in functions:
            names.extend(parameters(functions[node.id].args))
    return names


def parameters(signature: ast.arguments) -> "list[str]":
    """The names of all parameters."""
    usual = (*signature.posonlyargs, *signature.args, *signature.kwonlyargs)
    rest = [parameter for parameter in (signature.vararg, signature.kwarg) if parameter is not None]
    return [parameter.arg for parameter in (*usual, *rest)]


def parameters_of_program(
    signature: ast.arguments, args: "list[ast.expr]", keywords: "list[ast.keyword]", names: "set[str]"
) -> "list[str]":
    """The parameters that get a value that mentions ``names``."""
    by_position = [parameter.arg for parameter in (*signature.posonlyargs, *signature.args)]
    reached = [name for name, value in zip(by_position, args, strict=False) if mentions(value, names)]
    reached += [word.arg for word in keywords if word.arg and mentions(word.value, names)]
    return reached
