"""Words after and before a number in the seven languages of the recipe: which of them change or deny it.

Nouns are open classes, so any of them may be the thing counted; number words, multipliers, fractions, comparisons,
alternatives, doubts and negations are closed classes, listed here. Words are compared without case and accents; a star
stands for any ending. The English ones that depend on their position are in ``units``.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_GERMAN = """
null eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf *zehn zwanzig dreissig vierzig funfzig sechzig
siebzig achtzig neunzig hundert* tausend* million* milliard* billiard* trillion* dutzend* halb* halft* drittel*
viertel* funftel* sechstel* siebtel* achtel* neuntel* zehntel* hundertstel* tausendstel* doppel* dreifach* vierfach*
zehnfach* zweimal dreimal viermal mehrfach* nicht nichts kein* nie niemals falsch* unrichtig* ungultig* nein weder
ohne oder bzw beziehungsweise und sowie mehr weniger hochstens mindestens maximal minimal ungefahr etwa circa ca
beinahe knapp rund grosser kleiner uber unter bis vielleicht moglicherweise wahrscheinlich vermutlich eventuell hoch
einhalb fach wurzel geteilt multipliziert quadriert von ausser falls wenn promille
"""
_FRENCH = """
deux trois quatre cinq sept huit neuf dix onze douze treize quatorze quinze seize vingt* trente quarante cinquante
soixante septante huitante nonante mille millier* dizaine* douzaine* vingtaine* trentaine* quarantaine* cinquantaine*
soixantaine* centaine* demi demie demis demies moitie* tiers quart quarts cinquieme* sixieme* septieme* huitieme*
neuvieme* dixieme* centieme* millieme* non pas jamais aucun* faux fausse fausses incorrect* nul nulle sans ou et soit
plus moins environ presque peut-etre probablement approximativement superieur* inferieur* sauf sur si ni puissance
racine
"""
_SPANISH = """
cero uno dos tres cuatro cinco seis siete ocho nueve diez doce trece catorce quince dieci* veinte veinti* treinta
cuarenta cincuenta sesenta setenta ochenta noventa cien ciento* centenar* mil millar* millon* billon* docena* decena*
veintena* quincena* medio media medios medias mitad tercio* cuarto* quinto* sexto* septimo* octavo* noveno* decimo*
centesim* milesim* doble cuadruple nunca ningun* falso falsa sin tampoco erroneo* erronea* incorrecto* o u y mas
menos aproximadamente casi quizas quiza tal cerca alrededor mayor menor elevado raiz salvo excepto
"""
_ITALIAN = """
due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici diciassette
diciotto diciannove venti trenta quaranta cinquanta sessanta settanta ottanta novanta cento centinai* mila migliai*
milion* miliard* bilion* dozzin* decin* ventin* trentin* quindicin* cinquantin* mezzo mezza mezzi meta terzo terzi
quarto quarti quinti sesto sesti settimi ottavi noni decimi millesim* doppi* triplo tripla mai nessun* sbagliat*
errat* senza ne oppure e ed piu meno quasi forse almeno massimo minimo oltre fino eccetto radice
"""
_RUSSIAN = """
ноль один одна два две три четыре пять шесть семь восемь девять десять *надцать двадцать тридцать сорок *десят
девяносто сто двести триста четыреста пятьсот шестьсот семьсот восемьсот девятьсот тысяч* миллион* миллиард*
триллион* биллион* дюжин* десяток десятк* сотн* сотен полтора полторы половин* пол треть трети третьих третей может
четверть четверти четвертей пятых шестых седьмых восьмых девятых десятых сотых тысячных вдвое втрое вчетверо удвоен*
двойн* тройн* не нет ни неверн* неправильн* ложь ложн* никогда без ошибочн* или либо и также больше более меньше
менее около примерно приблизительно почти возможно наверное вероятно минимум максимум кроме свыше из квадрате кубе
степени корень если
"""
_ENGLISH_DENIALS = "nope nah nay none nil mistaken mistake error"
# Signs of numbers, multiples, fractions, comparisons and negations, wherever in a word they are.
_CHINESE = re.compile(
    "[十百千万萬亿億兆打成半倍负負非不没沒无無未错錯误誤或和与與及且余餘约約几幾是吗嗎假否除至]|分之|[大小]于|^平方$|多$|左右|以[上下内外]|多[个個名]|超过|至[少多]|最[多少]"
)
_CHINESE_HARMLESS = re.compile("不同|非负|非零|互不相同")
"""Parts of what is counted: ``12种不同的方法``."""

_DENIALS = """
not no none nor neither never cannot wrong incorrect false nope nah
nicht kein keine nie falsch
non pas ne jamais faux
nunca falso no
mai sbagliato
не нет неверно неправильно
"""
_DOUBTS = """
if unless or either maybe perhaps possibly probably guess estimate bound mistake error except otherwise sure unsure
roughly approximately about nearly almost
oder falls wenn vielleicht ungefahr etwa circa
ou si peut-etre environ
o si quizas quiza aproximadamente
oppure se forse circa
или если возможно около примерно
"""
_LIMITS = """
but only sometimes aber nur manchmal mais seulement parfois pero solo solamente ma soltanto talvolta но только иногда 但
"""
NEGATIONS = frozenset(_DENIALS.split())
RESERVATIONS = frozenset((_DOUBTS + _LIMITS).split())
"""Words that deny what follows, and words that restrict or doubt it."""
_RESTRICTIONS = _DENIALS + _DOUBTS
"""Words that make a sentence with a value something else than the statement of that value."""
_COPULAS = """
is are was equals equal be has have gets get obtain obtains find answer result total converges tends approaches
ist sind betragt lautet ergibt hat haben antwort konvergiert strebt
est sont vaut egale egal a reponse
es son vale igual hay tiene respuesta
e sono risulta risposta
равен равна равно равны это составляет ответ есть
"""
_LEAD_INS = """
therefore thus so hence then finally consequently we get have obtain find that there are is it be exactly in total
altogether simply just equal equals to the final answer result solution value of our which gives giving yields and
also daher folglich somit ergibt sich das ergebnis die antwort ist es gibt insgesamt genau lautet losung
donc ainsi par consequent on obtient la reponse est il y a exactement au total reponse finale
por lo tanto entonces luego la respuesta es hay exactamente en total respuesta final obtenemos
quindi dunque percio la risposta e ci sono esattamente in tutto risposta finale otteniamo
следовательно значит итак таким образом получаем ответ всего ровно итого
"""
_COUNTED_GENERALLY = """
way ways solution solutions value values number numbers integer integers pair pairs triple triples tuple tuples
possibility possibilities point points unit units time times case cases outcome outcomes element elements item items
person people answer answers combination combinations permutation permutations arrangement arrangements digit digits
term terms root roots step steps zero zeros set sets subset subsets function functions option options
moglichkeit moglichkeiten losung losungen wert werte zahl zahlen paar paare mal punkte stuck
facon facons maniere manieres solutions valeur valeurs nombre nombres paire paires fois points
forma formas manera maneras solucion soluciones valor valores numero numeros par pares veces puntos
modi modo soluzioni soluzione valori valore numeri numero coppie coppia volte punti
способ способа способов решение решения решений значение значения значений число числа чисел пара пары пар раз раза
точек
"""
NO_SOLUTION = (
    "keine lösung", "keine lösungen", "aucune solution", "pas de solution", "ninguna solución", "sin solución",
    "no hay solución", "nessuna soluzione", "нет решений", "решений нет", "无解", "無解",
)  # fmt: skip
"""The empty set of solutions in the other languages."""
_TIMES = frozenset(("volte", "fois", "veces", "mal", "раз", "раза"))
"""Words for times: alone they are counted, before another word they multiply."""
# A lead that ends with a copula or a colon: ``答案是``.
_CHINESE_LEAD = re.compile(r".*(?:是|为|為|等于|等於|共|有|得|即|答案|[:：=])\s*")
_CHINESE_DOUBT = re.compile(r"[不非没沒无無未错錯误誤或约約几幾若如]|至少|至多|大概|可能")
_IDEOGRAPH = re.compile(r"[\u3400-\u9fff]")
_CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)
_COUNTERS = frozenset("个個只隻位名本张張条條件块塊元人天年月日次种種组組对對双雙道题題页頁岁歲枚颗顆支辆輛棵份类類")


def plain(word: str) -> str:
    """A word without case and accents."""
    word = word.casefold()
    if word.isascii():
        return word
    # Accents become characters of their own and are dropped; that of й, which makes another letter, is kept.
    decomposed = unicodedata.normalize("NFD", word.replace("й", "\0"))
    bare = "".join(c for c in decomposed if not unicodedata.combining(c))
    return bare.replace("\0", "й")


def _classes(text: str) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Whole words, beginnings and endings of a list of words with stars."""
    words = text.split()
    whole = frozenset(word for word in words if "*" not in word)
    beginnings = tuple(word[:-1] for word in words if word.endswith("*"))
    endings = tuple(word[1:] for word in words if word.startswith("*"))
    return whole, beginnings, endings


_WHOLE, _BEGINNINGS, _ENDINGS = _classes(" ".join((_GERMAN, _FRENCH, _SPANISH, _ITALIAN, _RUSSIAN, _ENGLISH_DENIALS)))
_RESTRICTING, _COPULA, _LEAD_IN, _GENERAL = (
    frozenset(words.split()) for words in (_RESTRICTIONS, _COPULAS, _LEAD_INS, _COUNTED_GENERALLY)
)


def multiplies(words: Sequence[str]) -> bool:
    """Whether words after a number are those of a multiple: ``9 volte tanto``."""
    return len(words) > 1 and plain(words[0]) in _TIMES


@lru_cache(maxsize=4096)
def changes_number(word: str) -> bool:
    """Whether a word after a number changes or denies it in one of the seven languages."""
    if _IDEOGRAPH.search(word):
        return _CHINESE.search(_CHINESE_HARMLESS.sub("", word)) is not None
    bare = plain(word)
    return bare in _WHOLE or bare.startswith(_BEGINNINGS) or bare.endswith(_ENDINGS)


_WORDS_OF_FEW_LETTERS = """
yes no true odd even one two six ten none zero four five nine all east west red blue sun mon tue wed thu fri sat oui non
si ja nein dne both vero vrai wahr faux
"""
_SHORT_WORDS = frozenset(_WORDS_OF_FEW_LETTERS.split())
MAX_LETTERS = 4


def is_letters(text: str) -> bool:
    """Whether a short text is rather a run of letters (``CD``, ``bde``) than a word, so that its case matters."""
    run = text.isalpha() and text.isascii() and len(text) <= MAX_LETTERS
    titled = len(text) > 2 and text[1:].islower() and text[0].isupper()
    return run and not titled and text.lower() not in _SHORT_WORDS


_BEFORE_VALUES = frozenset((
    "exactly", "to", "just", "simply", "genau", "exactement", "exactamente", "esattamente", "gegen",
))  # fmt: skip
"""Words that may stand between a copula and its value."""


def states_value(lead: str) -> bool:
    """Whether words before a value only announce it: ``the number of apples is``, ``therefore there are``, ``答案是``.

    Negations, doubts, alternatives and conditions anywhere in them, or a comparison before the value, do not.
    """
    # Chinese is written without spaces between its words.
    if _IDEOGRAPH.search(lead):
        return bool(_CHINESE_LEAD.fullmatch(lead)) and not _CHINESE_DOUBT.search(lead)
    stripped = (plain(word.strip(".,:;!")) for word in lead.split())
    words = [word for word in stripped if word]
    if not words or _RESTRICTING.intersection(words):
        return False
    if _LEAD_IN.issuperset(words):
        return True
    while words and words[-1] in _BEFORE_VALUES:
        words.pop()
    if not words:
        return False
    return words[-1] in _COPULA or lead.rstrip().endswith((":", "：", "="))


def is_counted(words: str, question: str) -> bool:
    """Whether words after a number name what the question counts: one of them is in it, or is general (``ways``).

    Words of another script than the question's cannot be looked up in it.
    """
    bare_question = plain(question)
    if _script(words) != _script(question):
        return True
    return any(_is_thing(word, bare_question) for word in plain(words).replace("-", " ").split())


def _script(text: str) -> str:
    if _IDEOGRAPH.search(text):
        return "ideographs"
    return "cyrillic" if _CYRILLIC.search(text) else "latin"


MIN_STEM = 4


def _is_thing(word: str, question: str) -> bool:
    if _IDEOGRAPH.search(word):
        return any(c in _COUNTERS or c in question for c in word)
    # Without the last letters, which differ between a singular, a plural and the cases of a noun.
    stem = word[: max(MIN_STEM, len(word) - 3)]
    return word in _GENERAL or re.search(rf"(?<![^\W\d_]){re.escape(stem)}", question) is not None
