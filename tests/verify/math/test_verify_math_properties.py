"""Properties of all pairs of texts: verdicts are symmetric, nothing raises, takes long or is executed."""

import time
from fractions import Fraction

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from magcli.verify.math import compare, equal, parsable
from magcli.verify.math.equality.equations import quantity_value
from magcli.verify.math.latex.answers import parse_answer
from magcli.verify.math.latex.spelling import normalize
from magcli.verify.pool import Pool
from magcli.verify.reward import RewardRule

PIECES = [
    "10^{400}", r"10^{-400}", "e^{900}", "(10^{5000}+1)",     "1", "2", "12", "0.5", "x", "y", "n", "i",
    "e", "A", "f(x)", "+", "-", "*", "/", "^", "^2", "!", "=", "<",
    r"\le ", ",",
    ";", ":", "(", ")", "[", "]", "{", "}", r"\{", r"\}", "|", r"\frac", r"\frac12", r"\frac{1}{2}", r"\sqrt{2}",
    r"\sqrt", r"\pi ", r"\infty ", r"\pm ", r"\cup ", r"\sin ", r"\ln ", r"\log_2 ", r"\text{ cm}", r"\text{and}",
    "%", r"\$",
    r"^\circ", " or ", " cm", " ", r"\begin{pmatrix}", r"\end{pmatrix}", r"\begin{cases}", r"\end{cases}", "&",
    r"\\", "_2",
    r"\in ", r"\mathbb{R}", r"\sum_{k=1}^{3}", r"\binom", r"\overline{3}", "\\", "$", ".", "¼", "²", "√", "−",
]  # fmt: skip
ANSWERS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)
NUMBERS = st.fractions(min_value=-1000, max_value=1000, max_denominator=60)

HOSTILE = [
    "9^{9^{9^{9}}}", "(10^{6})!", "((3!)!)!", "5!!!!", r"\binom{10^9}{10^8}", "1" * 9_000, "9" * 4_000,
    "2^{" + "9" * 4_000 + "}",
    "+".join(["1"] * 4_000), "(" * 3_000 + "1" + ")" * 3_000, r"\frac{" * 800 + "1" + "}{2}" * 800, "x^{x^{x^{x^{x}}}}",
    r"\sqrt{" * 400 + "x" + "}" * 400, "(a+b+c+d+e+f)^{60}", r"\sum_{k=1}^{10^{12}} k", r"\prod_{k=1}^{10^9} k",
    r"\sum_{k=1}^{500}\sum_{j=1}^{500}\sum_{l=1}^{500} kjl", r"\int_0^1 \sin(\sin x) dx",
    r"\lfloor 10^{10^{10}}\rfloor",
    r"\gcd(9^{9^9},3)", r"9^{9^9} \mod 7", ",".join(map(str, range(2_000))), ",".join(f"x+{n}" for n in range(600)),
    r"\text{" * 2_000, " " * 9_000 + "5x", "\x00", "\u202e5", "\ud800", "nan", "zoo", "1/0", "0/0", "N", "Q", "S",
    "E", "I", "O",
    '__import__("os").system("false")', "exec(\"open('pwned','w')\")", 'f"{exit()}"', "exit()", "os._exit(0)",
    "time.sleep(60)",
    "().__class__.__bases__[0]", "{" * 5_000, "}" * 5_000, r"\{" * 4_000, "|" * 3_000, "[" * 3_000, "^" * 5_000,
    "x^" * 2_000,
    "-" * 5_000 + "1", "5" + "!" * 3_000, r"\pm" * 2_000 + "1", ",".join([r"\pm 1"] * 60), "C(" * 2_000, "f(" * 2_000,
    r"\sin" * 2_000 + "x", "1e999999", "0." + "0" * 5_000 + "1", r"\sin(10^{10^{10}})", "e^{e^{e^{e}}}", r"\log_1 5",
    "i^{i^{i^i}}",
    r"\sqrt[10^9]{2}", "2^{1/10^9}", r"\frac" * 500, "1:2:" * 900 + "3", "a=b=" * 400 + "c", "a<b<" * 400 + "c",
    "(1," * 1_500,
    r"\cup".join(f"({2 * n},{2 * n + 1})" for n in range(200)), "*".join(["2000!"] * 300),
    "+".join(["2^{60000}"] * 100),
    "+".join(rf"\sqrt{{{n}}}" for n in range(2, 300)), r"(1+1/x)^{x^{x}}", "and " * 2_000, r"\begin{cases}" * 300,
    r"\mathbb{R}\setminus\{" + ",".join(map(str, range(300))) + r"\}", r"x\neq" + r", x\neq".join(map(str, range(100))),
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ANSWERS, ANSWERS)
@example("x=0", "-x=0")
def test_a_verdict_is_symmetric(left: str, right: str) -> None:
    assume(
        quantity_value(parse_answer(normalize(left))) is None and quantity_value(parse_answer(normalize(right))) is None
    )
    assert equal(left, right) == equal(right, left), (compare(left, right), compare(right, left))


@settings(max_examples=150, deadline=None)
@given(ANSWERS)
def test_an_answer_equals_itself_in_a_box_and_cleaning_is_idempotent(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
    assert equal(text, text) == bool(text.strip())


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=120), st.text(max_size=20))
def test_arbitrary_text_is_judged_without_an_error(left: str, right: str) -> None:
    accepted, path = compare(left, right)
    assert path
    assert accepted == equal(right, left) or quantity_value(parse_answer(left)) or quantity_value(parse_answer(right))
    assert isinstance(parsable(left), bool)


@settings(max_examples=50, deadline=None)
@given(NUMBERS, NUMBERS)
def test_numbers_are_equal_exactly_when_their_values_are(a: Fraction, b: Fraction) -> None:
    for left in (f"{a.numerator}/{a.denominator}", rf"x=\dfrac{{{2 * a.numerator}}}{{{2 * a.denominator}}}"):
        for right in (str(b), rf"\frac{{{b.numerator}}}{{{b.denominator}}}\text{{ cm}}"):
            assert equal(left, right) == (a == b)
    assert equal(rf"\sqrt{{{a * a}}}", str(abs(a)))
    assert equal(rf"({a})x+({b})", rf"x\cdot({a})+({b})")
    assert equal(rf"x+({a})", rf"x+({b})") == (a == b)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:40].encode("ascii", "replace").decode())
def test_hostile_text_takes_little_time(text: str) -> None:
    start = time.process_time()
    for other in ("5", "x+1", text + "+1"):
        compare(text, other)
        compare(other, text)
    assert compare(text, text)[0] == bool(text.strip())
    assert time.process_time() - start < 10  # seven comparisons


def test_the_pool_survives_hostile_text() -> None:
    rule = RewardRule(penalty_end=10_000, use_language=False)
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE if text.count("{") == text.count("}")]

    jobs = [(f"<think>a</think>\\boxed{{{text}}}", 10, {"prompt": "?", "answer": "5x"}, rule) for text in texts]
    right = (r"<think>a</think>\boxed{x\cdot5}", 10, {"prompt": "?", "answer": "5x"}, rule)
    pool = Pool(1)
    *hostile, last = [each.reason for each in pool.rewards([*jobs, right])]
    pool.shutdown()
    assert last == "correct"
    assert set(hostile) <= {"wrong", "correct", "unclosed-box", "no-box", "empty-box"}


VALUES = [
    "5",
    "-3",
    r"\frac{3}{7}",
    r"2\sqrt{3}",
    "x+1",
    "12 cm",
    r"\$7",
    "50%",
    "(1,2)",
    r"\frac{\pi}{4}",
    "yes",
    "x=4",
]
TOP_LABELS = st.sampled_from("ABCDE")
JOINTS = st.sampled_from(
    [" or ", " and ", ", ", r"\text{ or }", r"\text{ and }", "; ", r" \lor ", r"\text{ or maybe }", " not "]
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(VALUES), st.sampled_from(VALUES), JOINTS)
def test_a_second_value_makes_an_answer_wrong(value: str, other: str, joint: str) -> None:
    for answer in (f"{value}{joint}{other}", f"{other}{joint}{value}"):
        assert value == other or not equal(answer, value), answer


@settings(max_examples=80, deadline=None)
@given(TOP_LABELS, TOP_LABELS, st.sampled_from(["{}", "({})", r"\text{{({})}}", r"\textbf{{({})}}"]),
       st.sampled_from([" or ", "/", " ", ", ", r"\text{ or }", r" \vee ", " 3 ", ": 3, ", r"\ 3\ or\ "]))  # fmt: skip
def test_a_second_label_makes_a_choice_wrong(label: str, other: str, form: str, joint: str) -> None:
    answer = f"{form.format(label)}{joint}{form.format(other)}"
    assert label == other or not (equal(answer, label) or equal(answer, other)), answer
    assert equal(form.format(label), label)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from("xtuzsr"), st.sampled_from("xtuzsr"),
       st.sampled_from(["{}", "2{}", "{}+1", "{}^2", "-{}", r"\frac{{1}}{{{}}}", "f({})"]),
       st.sampled_from(["{}", "3{}", "{}-1"]), st.sampled_from(["{}^2+1", r"\sin {}", "5{}"]))  # fmt: skip
def test_the_name_of_a_function_may_change_but_not_its_argument(
    a: str, b: str, head: str, other: str, body: str
) -> None:
    heads = [f"f({form.format(letter)})={body.format(letter)}" for form, letter in ((head, a), (head, b), (other, a))]
    assert equal(heads[0], heads[1])
    assert equal(heads[0], heads[2]) == (head == other)
    assert equal(heads[0], body.format(a)) == (head == "{}")


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 24), st.integers(0, 59))
def test_two_digits_of_minutes_are_a_time_and_not_a_ratio(hours: int, minutes: int) -> None:
    time_of_day = f"{hours}:{minutes:02}"
    assert equal(time_of_day, rf"\text{{{time_of_day}}}")
    for other in (f"{2 * hours}:{2 * minutes}", rf"\frac{{{hours}}}{{{minutes or 1}}}", f"{hours * 60 + minutes}"):
        assert not equal(time_of_day, other)
    assert equal(time_of_day, f"{hours}:{minutes}") == (minutes > 9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=3), st.integers(1, 5), st.integers(0, 2))
def test_a_ratio_in_words_equals_a_ground_truth_ratio(parts: list[int], times: int, moved: int) -> None:
    words = " to ".join(str(times * part) for part in parts)
    ratio = ":".join(map(str, parts))
    if parse_answer(ratio).name != "time":
        assert equal(words, ratio)
        assert equal(words.replace("to", r"\text{to}"), ratio.replace(":", "{:}"))
        other = [part + (place == moved % len(parts)) for place, part in enumerate(parts)]
        assert not equal(words, ":".join(map(str, other)))
    for gold in (
        rf"\frac{{{parts[0]}}}{{{parts[1]}}}",
        f"({','.join(map(str, parts))})",
        str(sum(parts)),
        str(parts[-1]),
    ):
        assert not equal(words, gold)


@settings(max_examples=60, deadline=None)
@given(st.integers(-5, 5).filter(bool), st.integers(-6, 6), st.integers(-3, 3).filter(bool), st.integers(-1, 1))
def test_an_absolute_value_equals_its_definition_by_cases(slope: int, offset: int, factor: int, moved: int) -> None:
    inner, root = f"{slope}x+({offset})", Fraction(-offset, slope)
    signs = (factor, -factor) if slope > 0 else (-factor, factor)

    def cases(root: Fraction, signs: tuple[int, int], at_root: str = r"\ge") -> str:
        rows = rf"{signs[0]}({inner}) & x{at_root} {root} \\ {signs[1]}({inner}) & x<{root}"
        return rf"\begin{{cases}} {rows} \end{{cases}}"

    bars = f"{factor}|{inner}|"
    assert equal(bars, cases(root, signs))
    assert equal(cases(root, signs), f"f(x)={bars}")
    assert equal(bars, cases(root + moved, signs)) == (moved == 0)
    for wrong in (cases(root, signs[::-1]), cases(root, (factor, factor)), cases(root, signs, ">")):
        assert not equal(bars, wrong)
        assert not equal(wrong, bars)


BASES = {"binary": 2, "octal": 8, "hexadecimal": 16, "hex": 16, "decimal": 10}


@settings(max_examples=60, deadline=None)
@given(st.text("01", min_size=2, max_size=8).filter(lambda digits: digits[0] == "1"),
       st.sampled_from(["{} in {}", "{} ({})", r"{}\text{{ in {}}}", "{} in {} notation", "{} {}"]),
       st.sampled_from(list(BASES)))  # fmt: skip
def test_a_base_in_words_after_a_number_counts(digits: str, form: str, word: str) -> None:
    answer = form.format(digits, word)
    assert equal(answer, digits) == equal(digits, answer) == (word == "decimal")
    for base in (2, 8, 10, 16):
        assert equal(answer, f"{digits}_{{{base}}}") == (base == BASES[word])
    assert equal(f"{digits} {word} strings", digits)


@pytest.mark.parametrize(("sign", "ray"), [("+", r"(0,\infty)"), ("-", r"(-\infty,0)")])
@pytest.mark.parametrize("form", [r"\mathbb{{R}}^{}", r"\mathbb R^{{{}}}", r"\mathbb{{R}}^{{{}}}"])
def test_the_positive_reals_are_an_open_ray(form: str, sign: str, ray: str) -> None:
    answer = form.format(sign)
    for other in (ray, f"x{'>' if sign == '+' else '<'}0", rf"x\in {answer}"):
        assert equal(answer, other)
        assert equal(other, answer)
    for other in (r"\mathbb{R}", ray.replace("(0", "[0").replace("0)", "0]"), r"\mathbb{Z}^+", r"(1,\infty)"):
        assert not equal(answer, other)
        assert not equal(other, answer)
