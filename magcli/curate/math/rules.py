"""The rules of the format filter: one table, frozen.

Almost every row decides about at least one of 3,367 rows labelled by hand; the others wait for credits, answers
that vary and the like. What no row can decide is left to a model (``magcli.curate.math.doubts``). The examples are
the tests.
"""

from magcli.curate.math.answer_rules import ANSWER_RULES
from magcli.curate.math.engine import Engine
from magcli.curate.math.statement_rules import STATEMENT_RULES

RULES = (*STATEMENT_RULES, *ANSWER_RULES)
ENGINE = Engine(RULES)
