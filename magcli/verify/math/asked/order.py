"""Whether a question asks for its values in an order, such as from least to greatest, and whether an answer has it."""

import re
from functools import lru_cache

from magcli.verify.math.asked.requests import MAX_QUESTION
from magcli.verify.math.equality.structure import same
from magcli.verify.math.latex.tree import Expr

_LISTS = ("list", "set")

_SENTENCE_END = re.compile(r"(?<=[.?!;])\s+|[。？！；\n]+")
_ANY_ORDER = re.compile(
    r"\bin (?:any|no|arbitrary|whatever|either) (?:\w+ )?order\b|\border (?:does not|doesn'?t|is not"
    r"|isn'?t) (?:matter|important)"
    r"|\bregardless of (?:the )?order|beliebiger Reihenfolge|\bn'importe quel ordre|\bcualquier orden"
    r"|\bqualsiasi ordine"
    r"|в любом порядке|任意顺序|顺序不限",
    re.IGNORECASE,
)
_SUPERLATIVE = r"(?:least|most|best|worst|low|high|small|large|\w{3,}est)"
# An order by itself, which a question may state or ask for.
_ORDER_EN = (
    r"\b(?<!necessarily )in (?!(?:some|each|every) )(?:[\w-]+ ){0,3}?order\b(?! to\b)"
    r"|\b(?:ascending|descending)(?:ly)?\b"
    rf"|\b{_SUPERLATIVE} (?:\w+ )?to (?:the )?{_SUPERLATIVE}\b"
    rf"|\b(?:start|begin)(?:ning|ing)? (?:with|from|at) the {_SUPERLATIVE}\b"
    rf"|\b(?:{_SUPERLATIVE}|smaller|larger|greater|lesser|bigger) (?:\w+ )?first\b"
    r"|\bby (?:increasing|decreasing|size|value|magnitude)\b"
)
_ORDER = re.compile(
    _ORDER_EN + r"|(?:auf|ab)steigend|(?<=der )Größe nach|\bReihenfolge\b"
    r"|\bvo[nm] (?:klein\w*|groß\w*|größten|kleinsten) (?:zum|zur|nach|bis)\b"
    r"|\bordre (?:dé)?croissant|\bordre (?:alphabétique|chronologique|demandé|indiqué|donné)|\b(?:cet|l['’]) ?ordre\b"
    r"|\bdu plus \w+ au plus \w+"
    r"|\b(?:en|por) (?:este |ese )?orden\b|\borden (?:de)?creciente|\bde menor a mayor|\bde mayor a menor"
    r"|\bin (?:questo |quest')?ordine\b|\bordine (?:de)?crescente|\bdal (?:più piccolo|minore|più grande|maggiore) al\b"
    r"|\b(?:em )?ordem (?:de)?crescente|\bem ordem\b|\bdo (?:menor|maior) (?:para o|ao)\b"
    r"|в порядке|в (?:этом|указанном|алфавитном) порядке|по (?:возрастанию|убыванию)|от (?:наи)?(?:меньшего|большего) к"
    r"|[从由][小大低高短长少多轻重]到[大小高低长短多少重轻]|[升降]序|[按依照]\S{0,12}(?:顺序|次序|排列|排序)",
    re.IGNORECASE,
)
# What makes a sentence with an order a request; else it may describe what is given.
_REQUEST = re.compile(
    r"\b(?:order|sort|arrange|rearrange|reorder|rank|put|place|list|write|give|enter|express|state"
    r"|report|answer|separate"
    r"|name|find|provide|return|output|present|submit|identify|determine|compute|calculate|what|which|in what order"
    r"|should|must)\b"
    r"|\b(?:ordn|sortier|schreib|g[ie]b|nenn|bestimm|berechn|find|welche|bring|list|stell|wie lauten)"
    r"|\b(?:rang|class|ordonn|tri|écri|donne|trouve|détermin|calcul|quel)"
    r"|\b(?:orden|clasific|escrib|da|halla|encuentr|determin|coloc|cuál)"
    r"|\b(?:ordin|dispon|metti|scriv|trova|elenca|quali)|\b(?:escreva|coloque|organize|quais)"
    r"|располож|упорядоч|отсортир|запиш|выпиш|найдите|укажите|[把将用求请]|排[列序]",
    re.IGNORECASE,
)
# ``are listed`` before an order: it is given. ``should be listed`` asks for it.
_STATED = re.compile(
    r"(?<!should )(?<!must )\b(?:is|are|was|were|been|being|be|sind|ist|sont|est|son|están|está|sono|è|são|estão)"
    r"(?: \w+)? (?:\w+(?:ed|en|et|t|és?|ées?|ad[oa]s?|at[aieo]|ti|te))?(?:\s+[\w$\\{}]+){0,2}\s*$"
    r"|\b(?:form|forms|forming|formed)\b[^.]*$"
    r"|(?:расположен|записан|упорядочен|выписан)\w*\s*$",
    re.IGNORECASE,
)
# Requests that are orders themselves.
_SORT = re.compile(
    r"(?:^|[,:]\s*|\b(?:please|then|and) )(?:sort|order|rank|reorder|rearrange)\b(?! of\b)"
    r"|\b(?:sortiere|ordne)\w*|(?:^|[,:]\s*)(?:range|classe|ordonne|trie)[rz]?\b|(?:^"
    r"|[,:¡]\s*)(?:ordena|ordene|ordina)[rt]?e?\b"
    r"|упорядоч(?:ь|ите)|отсортируй|排序",
    re.IGNORECASE,
)
_ASKS = r"(?:find|what are|which are|determine|give|compute|calculate|state|write|list|name|identify|enter|continue)"
_OF_SEQUENCE = re.compile(
    rf"\b{_ASKS}\b[^.?!]{{0,60}}\b(?:next|first|missing|last|following) (?:[\w-]+ ){{0,3}}?"
    r"(?:terms|(?:numbers|elements|members|entries)\b[^.?!]{0,40}\b(?:sequence|pattern|progression|series))\b"
    r"|(?:nächsten|ersten|fehlenden) (?:\w+ )?(?:Folgeng|G)lieder|(?:premiers|prochains) termes|termes suivants"
    r"|(?:primeros|siguientes|próximos) (?:\w+ )?términos|(?:primi|prossimi|successivi) (?:\w+ )?termini"
    r"|(?:первые|следующие) (?:\w+ )?член|[前后]\S{0,3}项(?:分别|依次|是)",
    re.IGNORECASE,
)
_GIVES = r"(?!\b(?:if|when|where|given|with|have|has|had|are|is|such|that|whose|be|lies?|lie)\b)"
# ``What are the mean and the median, respectively?``, but not of what is given.
_RESPECTIVELY = re.compile(
    rf"\b{_ASKS}\b(?:{_GIVES}[^.?!])" r"{1,160}\brespectively\b"
    r"|[求则]?[^，。？]{0,30}分别(?:是|为|等于)\s*(?:多少|什么|几|[_(（]|\\underline|\s*$)",
    re.IGNORECASE,
)  # fmt: skip


@lru_cache(maxsize=1024)
def asks_for_order(question: str) -> bool:
    """Whether a question asks for its values in an order: sorted, as terms of a sequence, in the order of their names.

    An order that only describes what is given (``the numbers are listed in ascending order``) does not count.
    """
    if len(question) > MAX_QUESTION or _ANY_ORDER.search(question):
        return False
    return any(map(_asks_for_order, _SENTENCE_END.split(question)))


def _asks_for_order(sentence: str) -> bool:
    if _SORT.search(sentence) or _OF_SEQUENCE.search(sentence) or _RESPECTIVELY.search(sentence):
        return True
    if not _REQUEST.search(sentence):
        return False
    for order in _ORDER.finditer(sentence):
        before = sentence[: order.start()][-60:]
        if not _STATED.search(before):
            return True
    return False


def is_out_of_order(answer: Expr, gold: Expr) -> bool:
    """Whether two lists of equal values have them in another order; values with names may be in any order."""
    if answer.op not in _LISTS or gold.op not in _LISTS or len(answer.args) != len(gold.args):
        return False
    if any(part.op == "rel" for part in (*answer.args, *gold.args)):
        return False
    pairs = zip(answer.args, gold.args, strict=True)
    return not all(same(one, other)[0] for one, other in pairs)


_ASCENDING = re.compile(
    r"\b(?:ascending|increasing)\b|\b(?:least|smallest|lowest|shortest|low|small) (?:\w+ )?(?:to|first)\b"
    r"|aufsteigend|croissant|creciente|crescente|возраста|从小到大|升序",
    re.IGNORECASE,
)
_DESCENDING = re.compile(
    r"\b(?:descending|decreasing)\b|\b(?:greatest|largest|highest|biggest|longest|high|large) (?:\w+ )?(?:to|first)\b"
    r"|absteigend|décroissant|decreciente|decrescente|убыва|从大到小|降序",
    re.IGNORECASE,
)
_CHAIN_OF_NAMES = re.compile(r"[A-Za-z]\w*(?:\s*(?P<sign>[<>])\s*[A-Za-z]\w*)(?:\s*(?P=sign)\s*[A-Za-z]\w*)*")


def chain_as_list(text: str, question: str) -> str:
    """A chain of names (``c<a<b``) as their list, if it has the direction of the order that the question asks for."""
    bare = text.strip("$ ")
    chain = _CHAIN_OF_NAMES.fullmatch(bare)
    if chain is None or not asks_for_order(question):
        return text
    ascending, descending = bool(_ASCENDING.search(question)), bool(_DESCENDING.search(question))
    is_ascending = chain["sign"] == "<"
    if ascending == descending or ascending != is_ascending:
        return text
    return re.sub(r"\s*[<>]\s*", ", ", bare)
