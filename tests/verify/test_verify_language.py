import pytest

from magcli.verify.language import consistent, identify, strip

TEXTS = {
    "en": "Janet sells the remaining eggs at the market, so she earns $18 every day.",
    "fr": "La somme des deux nombres est égale à dix, donc la réponse est \\boxed{10}.",
    "de": "Die Summe der beiden Zahlen ist zehn, also lautet die Antwort \\boxed{10}.",
    "es": "La suma de los dos números es diez, por lo tanto la respuesta es \\boxed{10}.",
    "it": "La somma dei due numeri è dieci, quindi la risposta è \\boxed{10}.",
    "zh": "两个数的和是十，所以答案是 \\boxed{10}。",
    "ru": "Сумма двух чисел равна десяти, поэтому ответ равен \\boxed{10}.",
}


@pytest.mark.parametrize(("language", "text"), TEXTS.items())
def test_identify(language: str, text: str) -> None:
    assert identify(text) == language


CODE = "```python\nprint('hello world')\n```"


@pytest.mark.parametrize("text", ["", "3+4=7", r"$x^2 + y^2 = z^2$", r"\boxed{5}", "x = y", "\ud800", CODE])
def test_too_little_text_is_undecided(text: str) -> None:
    assert identify(text) is None


def test_strip_leaves_words() -> None:
    text = (
        "We see `len(x)` at https://a.b/c that $\\alpha$ is\n\\[ x^2 \\]\nabout 3.5 cm.\n```py\nfor i in x: pass\n```"
    )
    assert strip(text) == "We see at that is about cm"


def test_consistent() -> None:
    assert consistent(TEXTS["en"], TEXTS["en"], "The answer is \\boxed{18}.") is True
    assert consistent(TEXTS["en"], TEXTS["fr"], TEXTS["en"]) is False
    assert consistent(TEXTS["fr"], TEXTS["fr"], TEXTS["en"]) is False
    assert consistent(TEXTS["en"], TEXTS["en"], "\\boxed{18}") is None


def test_formulas_do_not_change_the_language() -> None:
    assert identify(TEXTS["de"] + " $" + "a + b = c, " * 30 + "$ \\begin{align} x &= y \\end{align}") == "de"
