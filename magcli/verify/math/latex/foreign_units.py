"""Units and number words of the other languages of the recipe, without accents."""

_UNITS = """
percent: prozent процент процента процентов
meter: metro metros metri metre metres metern метр метра метров м 米
hour: stunde stunden hora heure ora ore час часа часов ч 小时
centimeter: zentimeter zentimetern centimetro centimetros centimetri centimetre centimetres сантиметр
centimeter: сантиметра сантиметров см 厘米
kilometer: kilometern kilometro kilometros kilometre kilometres chilometro chilometri километр километра
kilometer: километров км 千米 公里
millimeter: millimetern milimetro milimetros millimetro millimetri миллиметр миллиметра миллиметров мм 毫米
gram: gramm gramo gramos gramme grammes grammo grammi грамм грамма граммов г 克
kilogram: kilogramm kilogramo kilogramos kilogramme kilogrammes chilogrammo chilogrammi килограмм килограмма
kilogram: килограммов кг 千克 公斤
liter: litern litro litros litri литр литра литров л 升
week: woche wochen semaine settimana settimane semana неделя недели недель 周
second: sekunde sekunden segundo segundos seconde secondes secondo secondi секунда секунды секунд с 秒
minute: minuten minuto minutos minuti минута минуты минут мин 分钟
day: tag tage tagen dia dias jour jours giorno giorni день дня дней 天
degree: grad grado grados degre degres gradi градус градуса градусов 度
year: jahr jahre jahren ano anos annee annees anni год года лет 年
euro: евро 欧元
dollar: dolar dolares dollari dollaro доллар доллара долларов 美元
yuan: 元 юань юаней
rupee: rupie rupien roupie rupia rupias рупий
ruble: rouble rubel рубль рубля рублей ₽
pound: pfund
"""


def by_unit(table: str) -> dict[str, str]:
    """The names of each unit in a table with one, a colon and names on each line; a unit may have several lines."""
    names: dict[str, str] = {}
    for line in table.strip().splitlines():
        unit, _, words = line.partition(":")
        names[unit] = names.get(unit, "") + words
    return names


FOREIGN_UNITS = by_unit(_UNITS)
"""The English name of a unit and its names in the other languages."""

_SCALES = """
12: dutzend douzaine douzaines docena docenas dozzina dozzine дюжина дюжины дюжин 打
100: hundert 百
1000: tausend mille mila тысяча тысячи тысяч 千
10000: 万 萬
1000000: millionen millon millones milione milioni миллион миллиона миллионов
100000000: 亿 億
1000000000: milliarde milliarden milliard milliards miliardo miliardi миллиард миллиарда миллиардов
"""
FOREIGN_SCALES = {int(factor): words.split() for factor, words in by_unit(_SCALES).items()}
"""Words that multiply the number before them."""
