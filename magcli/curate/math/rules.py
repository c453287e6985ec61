"""The rules of the format filter, a frozen table; ``answer_rules`` has those about options, answers and boilerplate.

Almost every rule decides at least one of 3,367 rows labelled by hand. Each has an example and a counterexample, which
are its tests. What no rule can decide is left to a model (``magcli.curate.math.problems.model_question``).
"""

from magcli.curate.math.answer_rules import ANSWER_RULES
from magcli.curate.math.rule_table import Rule, RuleTable

# Fragments that several rules share. Compiled with ``re.I`` and ``re.M``; (?-i:...) is case-sensitive.
_FIND = r"(?:find|determine|compute|calculate|evaluate)"
# Where a sentence or an instruction may begin.
_START = r"(?:\A|[.;:!?>,，。；：？！\n)）}]|\$\s|\b(?:and|then|thus|please)\b)\W{0,4}\s*"
_FIGURE = (
    r"(?:figures?|diagrams?|pictures?|graphs?|charts?|tables?|images?|illustrations?|drawings?|histograms?"
    r"|scatterplots?)"
)
_SHOWN = r"(?:shown|pictured|depicted|drawn|illustrated|displayed|given|seen|indicated|provided)"
# What a request refers to that a statement may lack.
_TEXT = (
    r"(?:articles?|passages?|paragraphs?|texts?|documents?|poems?|essays?|story|stories|data(?:\s?set)?|tables?|lists?"
    r"|sentences?|images?|pictures?|numbers|words|reviews?|conversation|dialogue|websites?|code|program|photos?|video"
    r"|song|values|data\s+points|equations?|expressions?|sequences?|series|fractions|integrals?|inequalit(?:y|ies)"
    r"|matri(?:x|ces)|polynomials?|graphs?|diagrams?|figures?|shapes|circuit|functions?)"
)
_TEXT_ZH = (
    r"(?:文章|文本|文字|段落|句子|诗歌?|陈述|文档|数据集?|数列|列表|表格|图[片像表]|gif图|漫画|画作?|照片|标志|故事"
    r"|评论|新闻|对话|单词|词语|信息|场景|论文|邮件|代码|歌词|曲谱|食谱|小说|数[字值组]|方程|算式|表达式|函数|图形|不等式)"
)
# Two questions at the end, joined by a comma only: how many rooms, how many guests?
_TWO_CLAUSES = (
    r"(?:多少|几)[^，,。．；;？?]{0,14}[，,][^，,。．；;？?：:]{1,25}(?:多少|几)[^，,。．；;？?]{0,8}"
    r"[？?。．.]?(?:\s*请[^。]{1,12}。)?\s*\Z"
)
_MEASURE = (
    r"(?:mass|weight|area|volume|perimeter|circumference|radius|diameter|mean|median|mode|variance|speed|velocity"
    r"|(?:standard\s+)?deviation|acceleration|force|stress|strain|elongation|wavelength|frequency|energy|momentum"
    r"|period|amplitude|pressure|rank)"
)
_COUNT = r"(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred|dozen|half|twice|double|triple)"
# Verbs that ask for a value, unless what follows is no value: "find it", "express your answer".
_TASK = (
    r"(?:find|determine|compute|calculate|evaluate|solve|estimate|derive|interpret|identify|list|obtain|diagonalize"
    r"|factor|expand|convert|deduce|maximize|minimize|construct(?!\s+(?:\w+\s+){0,2}Ξ)|predict|assess)(?!\s+(?:without"
    r"|it\b|this\b|these\b|them\b|your\b|the\s+(?:\w+\s+){0,2}(?:problem|question|exercise|puzzle|task)s?\b"
    r"|(?:the\s+)?following\s+(?:values|quantities)\b))|(?:express|describe|classify)(?!\s+(?:your"
    r"|the\s+(?:\w+\s+)?(?:answers?|results?|solutions?)|it|this|each|in|all|them|as)\b|\s+\S+\s+as\b)"
)
# A further thing to find, after a comma or "and", and no further instruction.
_OBJECT = (
    r"(?!(?:give|write|graph|state|show|list|express|then|find|determine|check|use|if|so|sketch|round|simplify)\b)"
    r"(?:(?:an?|its?|the|their)\s+)?(?:[a-z][\w-]*\s+){0,3}?[a-z][\w-]+"
)
# A formula that is more than a name: with a bracket, a command, a power, a differential or two capitals.
_COMPOUND = r"\$(?=[^$]*(?:[(\\^]|\bd\s?[a-z]\b|(?-i:[A-Z]\s?[A-Z])))[^$]{2,}\$"

_STATEMENT_RULES = (
    # What a statement refers to and does not hold.
    Rule("relay", "elsewhere", "en", "tnywr|t n y|receive", r"T\s*=\s*T\s?N\s?Y\s?W\s?R|\bnumber you will receive\b",
        "Let $T=TNYWR$. Compute $T+3$.", "Compute the area of pentagon $T N Y W R$."),
    Rule("earlier-problem", "elsewhere", "en", "previous|preceding|last",
        r"(?:\b(?:from|of|to|see|using|as in)|(?:\A|[.(])\s*in)\s+(?:the\s+)?(?:previous|preceding|last)\s+(?:problem"
        r"|question|exercise|part|example)s?\b|(?:\A|\.\s+)(?:include|use|consider|repeat)\b[^.?!]{0,90}\sin\s+the\s+"
        r"(?:previous|preceding)\s+(?:problem|exercise|example)\b",
        "Use the result of the previous problem.", "He solved as many in the previous problem."),
    Rule("text-above", "elsewhere", "en", "the above|this above",
        r"\A[^.?!\n]{0,40}\b(?:the|this)\s+above\s+(?:\w+\s+)?(?:content|text|statement|sentence|passage|problem"
        r"|question|expression|equation)\b[^.?!\n]*\.?\s*\Z",
        "Translate the above content in English.", "Find the above sum. It is 3."),
    Rule("text-to-follow", "elsewhere", "en", "following|given|above|provided|this|these",
        r"\A(?=[^\n]{1,199}\Z)(?!.*[\d$\"“]\s*\S)(?:[^.?!:,\"“$\d]*\b(?:the|this|these)\s+(?:following|given|above"
        rf"|provided)\s+(?:\w+\s+){{0,2}}{_TEXT}|[^.?!:,\"“$\d]*\b(?:of|complete|fill|rewrite|edit|sort|solve"
        r"|simplify|evaluate|summarize|read|in|from)\s+(?:this|these)\s+(?!(?:case|way|year|month|week"
        rf"|day)s?\b){_TEXT})\b[^.?!:\"“$\d]*[.?!]?\s*\Z",
        "Rank the items of the following list by their price.", "Rank the items of the list: a, b."),
    Rule("text-to-follow-zh", "elsewhere", "zh", "以下|下列|这|给|提供|上述|下面",
        r"\A(?=[^\n]{1,199}\Z)(?!.*[\d$\"“]\s*\S)(?!.*(?:写|创建|设计|编写|实现|构建).*(?:函数|程序|算法|系统|脚本"
        r"|查询|方法))[^。？！：:，,“”\"《》$\d]{0,40}(?:以下|下列|这[段篇首句幅个张些]|给定的?|所给的?|提供的"
        rf"|上述|下面的?)[^。？！：:“”\"《》$\d]{{0,12}}?{_TEXT_ZH}[^。？！：:“”\"《》$\d]{{0,40}}[。？]?\s*\Z",
        "请根据以下文章构建一个问题。", "编写一个函数，求给定数组的和。"),
    Rule("breaks-into-a-question", "elsewhere", "en", " is | are | was | equals ",
        r"(?-i:\b(?:is|are|was|equals)\s+(?:How|What|Find|Determine)\s)",
        "The speed of sound is How long does it take?", "The question is how long it takes."),
    Rule("formula-breaks-off", "elsewhere", "any", "$",
        r"\$[^$]*[(\[](?:[^()\[\]$]|[(\[][^()\[\]$]*[)\]])+(?<![(\[=\s])\s*\$\$?\Z",
        "Find $$[x f(y)+2x] dy+[y f(x)$$", "Find $f(x)$"),
    Rule("picture-file", "elsewhere", "any", ".png|.jpg|.jpeg|.gif|.svg|\\includegraphics|<img",
        r"(?<![\w./-])[\w./-]{0,200}/[\w-]{1,100}\.(?:png|jpe?g|gif|svg)\b|\\includegraphics|<img\b",
        "The chain in ./own/mc.png has a period.", "The file photo.png has 300 kilobytes."),
    Rule("numbered-elsewhere", "elsewhere", "en", "example|exercise|problem|theorem|your ",
        r"\b(?:see|in|from|of|refer\s+to)\s+(?:exercise|problem|example|theorem)\s+[A-Z]?\d+(?:\.\d+)*\b|\b(?:in|from"
        r"|of|using)\s+your\s+(?:periodic\s+table|textbook|lecture\s+notes|appendix|handout)\b",
        "Consider the problem (see Example 5).", "What is the price of the textbook?"),
    Rule("part-elsewhere", "part", "en", "part", r"\b(?:in|from|of|to|using|by|with)\s+part\s+\(?([a-h1-6])\b\)?",
        "Use the result in part (a).", "Use the result in part."),
    Rule("announced", "announced", "any", "given|defined|follow|equations|data|points|statements|clues|claims|下|其中",
        r"(?:\b(?:given\s+by|defined\s+(?:by|as)|(?:by|are|is)\s+the\s+(?:equations?|data|points|functions?)"
        r"|as\s+follows|the\s+following|(?:statements|clues|claims)\s+(?:are|were))|[为是如]下)\s*[:：.,，]?\s*(?:\\n"
        r"|\n)*\s*(?:其中|where\b|\Z)|[函数度]为\s*[:：.,，]?\s*(?:\\n|\n)*\s*其中",
        "The statements are:", "The statements are: $x>1$, $x>2$."),
    Rule("scan-remains", "elsewhere", "any", "\ufffd|↑|↓|arrow|<unk>|[unreadable]|????",
        r"[\ufffd↑↓]|\\(?:up|down)arrow\s*=|<unk>|\[unreadable\]|\?{4,}", "Let $N↑0.014$ be normal.", "What? How?"),
    Rule("no-list", "elsewhere", "zh", "下面|下列|以下",
        r"(?:下面|下列|以下)(?:的|各|哪[个道些]?|[2-9二两三四五六]个|第|每|再?选|几个?){0,2}(?="
        r"(?-i:[^：:；;\n□=+×÷A-D]{0,70})(?:多少|哪个|几))(?:[小分]?数|算?式子?|题|多少|时刻"
        r"|一根)(?![^\n]{0,80}\d\s?[、，,]\s?\d)(?-i:[^：:；;\n□=+×÷A-D\\]{0,80})\Z",
        "下面各数中，最接近于3的是多少", "下列各数 3.1、3.01 中最小的是多少"),
    Rule("breaks-off", "breaks-off", "any", "",
        r"(?:\s(?:the|of|and|an|with|from|where|if|which|or|whose|such that|so that|because|when)|(?<=[\w\s)}])[*+&]"
        r"|(?<=[\d\s)}])/|[,，、(（])\s*\Z", "A train arrives at the", "What is 3 + 4?"),
    Rule("tells-a-story", "story", "en", "", r"\A\W{0,3}(?:[A-Za-z\d'’,.$%-]+\s+){8,}[A-Za-z\d%]+\s?\.\s*\Z",
        "The sum of two ages is 30 . One of them is twice the other .",
        "The sum of two ages is $x+3$ and one is twice the other one."),
    Rule("asking-word", "asking", "en", "",
        r"\b(?:wh(?:at|ich|om?|ose|ere|en|y)|how|find|compute|calculate|determine|evaluate|solve|simplify|express"
        r"|give|write|state|list|name|prove|show|graph|sketch|draw|use|identify|convert|factor|expand|estimate|round"
        r"|translate|complete|add|subtract|multiply|divide|reduce|please|let|match|classify|construct|describe"
        r"|rewrite|put|make|choose|select|tell|detect|merge|does|do|input|set)\b|\A\W*(?:is|are|was|can)\b",
        "One is twice the other. Find the ages.", "One is twice the other."),
    # Data that a story tells of and does not give.
    Rule("gathered", "gathered", "en", "",
        r"\b(?:count(?:ed|ing)?|record(?:ed|s)|tracked|kept|keeps|noted|monitor(?:ed|s|ing)|wrote\s+down|logged"
        r"|surveyed|researched|compared|compiled|followed|f(?:ound|ind|igured)\s+out|looked\s+(?:over|at|up)|measured"
        r"|weighed|graphed|stud(?:ied|ying)|reported|evaluated|recalled|asked|released|informed|examined|determined"
        r"|revealed|published|analyzed)\b", "A nurse weighed all the children.", "A nurse has a heavy child."),
    Rule("quantity", "quantity", "en", "",
        rf"\d|\b{_COUNT}\b|[\"“$\\]|\bif\b|\b(?-i:[A-Z]{{3,}})\b|\b(?:decks?|cards?|dic?e|coins?|faces?|edges?|cubes?"
        r"|triangles?|squares?|circles?|alphabet|letters?|words?|clock|legs|primes?|digits?|integers?)\b",
        "A class compared two numbers.", "A class compared some numbers."),
    Rule("cost-asked", "cost-asked", "en", " spend| cost| to buy| buys | pay",
        r"\bhow\s+much\s+(?:money\s+)?(?:more\s+)?(?:did|does|do|will|would|is|was)\b[^?]*\b(?:spend|pay|cost"
        r"|need\s+to\s+buy|have\s+left\s+if\s+\w+\s+buys?)\b[^?]*\?|\bdoes\s+(?:he|she)\s+have\s+enough\s+to\s+buy\b"
        r"|\bwhat\s+(?:is|was)\s+the\s+total\s+cost\b",
        "How much more does a kite cost than a ball?", "How much does a kite weigh?"),
    Rule("price", "price", "en", "",
        r"[€£¥%\\元]|(?<!\bhas )\$|\$(?![\d,.]*\d\.\s)|\d\s*[pcd]\b|\b(?:dollars?|cents?|price[ds]?|rs|yuan|pesos?"
        r"|rupees?|euros?|bucks|penn(?:y|ies)|dimes?|nickels?|quarters?|coins?|bills?|fee|rate|charges?d?|fares?|per"
        r"|each|worth|sold|percent|discount|sale|half|twice|triple|double|times|as\s+much|more\s+than|less\s+than"
        r"|wages?|tax|paid|had|saved|change|remain(?:s|ing)?|\d+\s+left)\b|\b(?:cost(?:s|ed|ing)?|is|are|at)\s+\d"
        r"|(?<!cost )\bfor\s+(?:a\s+)?\d|\b(?:if|when)\b(?!\s+\w+\s+buys)",
        "Ben bought 3 pounds of nuts at $4 a pound.", "Ben bought 3 pounds of nuts."),
    Rule("points-at-nothing", "lacks-content", "en", "",
        r"\A(?:[^?.!\n\d$=]{0,60}\b(?:this|these)\s+(?:\d\s+)?(?!(?:year|month|week|morning|way"
        r"|case)s?\b)[a-z]+[^?.!\n\d$=]{0,40}[?.]?|[\s$\d.,]+)\Z",
        "Can these 3 shapes form squares?", "How many seconds are there in this hour of 60 minutes?"),
    Rule("unknown-of-nothing", "lacks-content", "en", "what|find|calculate",
        r"\A(?:(?:find|calculate|what(?:'s|\s+(?:is|are)))\s+the\s+(?:(?:missing\s+)?digits?|values?)\s+(?:of"
        r"|represented\s+by)\s+\$*(?-i:[A-Z])\$*(?:\s+and\s+\$*(?-i:[A-Z])\$*)?|what\s+(?:is|must"
        r"|was)\s+the\s+(?:(?:missing|smallest|largest|unknown|next)\s+)?(?:number|remainder|divisor|dividend"
        r"|quotient)(?:\s+be)?)\s*[?.]?\Z", "What must the divisor be?", "What must the divisor of 12 be?"),
    Rule("count-of-nothing", "lacks-content", "en", "how many",
        r"\A(?:how\s+many\s+(?:more\s+)?[a-z]+\s+(?:than\s+[a-z]+\s+)?are\s+there(?:\s+in\s+(?:each|equal)\s+\w+)?"
        rf"|(?!.*\b(?:{_COUNT}|each)\b)[^?.!\n\d$=]{{0,40}}\bhow\s+many\s+(?:more\s+)?[a-z]+\s+(?:does|did"
        r"|do)\s+(?:he|she|they|(?-i:[A-Z])[a-z]+)\s+(?:(?:want|need|plan|have)\s+to\s+)?(?:need|get|buy|sell|give"
        r"|take|eat|make|pay|spend|use|have)(?:\s+(?:out|left|altogether|in\s+all|now|in\s+total))?)\s*\?\Z",
        "How many marbles does Tim want to buy?", "Out of two dozen, how many eggs does she sell?"),
    # Figures that are named, and what tells that words do without them.
    Rule("figure-shows", "figure", "en", "figure|diagram|graph|chart|table|picture|scatterplot|histogram",
        rf"\b(?:the|this|following|adjoining|accompanying|attached)\s+(?:following\s+)?{_FIGURE}\s+(?:shows|shown"
        r"|gives?|depicts|represents|indicates|displays|illustrates|below|above)\b",
        "The diagram shows a path. How long is it?", "The graph of $f$ passes through 1."),
    Rule("in-the-figure", "figure", "en", "figure|diagram|graph|chart|table|picture",
        r"\b(?:see|in|from|on|using)\s+the\s+(?:(?:following|adjoining|accompanying|attached|above|below"
        r"|given)\s+)?(?:figure|diagram|(?:adjoining|following|accompanying|above|below)\s+(?:picture|graph|chart"
        r"|table))(?=\s*[,.):;]|\s+(?:below|above|shown))",
        "In the diagram, find $x$.", "Tom found 3 coins in the picture frame."),
    Rule("shown-in-the-figure", "figure", "en",
        "shown|pictured|depicted|drawn|illustrated|displayed|given|seen|indicated|below|above|right|left",
        rf"\b{_SHOWN}\s+(?:in|on|by)\s+(?:the|this|each)\s+(?:\w+\s+)?{_FIGURE}\b|\b{_FIGURE}\s+(?:(?:is"
        rf"|are)\s+)?(?:(?:as\s+)?{_SHOWN}\s*)?(?:below|above|(?:at|to|on)\s+(?:the\s+)?(?:right|left))\b",
        "As shown in the figure, $x=3$.", "It is shown in 3 steps."),
    Rule("numbered-figure", "figure", "en", "fig",
        r"(?<![(（])\bFig\.\s*[A-Z]?\d|\bfigure\s*[A-Z]?\d+(?:\.\d+)?[a-z]?\s+(?:shows|depicts|illustrates|gives)\b",
        "Fig. Q2 shows a noise shaper.", "Its orbit is long (Fig. 13.20)."),
    Rule("figure-zh", "figure", "zh", "图|表",
        r"如图(?![象像])|(?<![剩剪余以])下图(?![形书])|图中|见图|图示|上图(?!书)|[右左]图|[下上]表(?![达面明述示])"
        r"|示意图", "如图，求 $x$。", "剪去一个正方形，剩下图形的周长是多少？"),
    Rule("shown", "figure", "en", "shown|pictured|depicted|illustrated",
        r"\bas\s+(?:shown|pictured|depicted|illustrated)(?=\s*[.,:;]|\s+(?:below|above|here)\b|\s*\Z)"
        r"|\bshown\s+(?:(?:in|by|with)\s+(?:the\s+)?\w+\s+)?(?:below|above|here|to the right)\b",
        "A square is folded as shown, so that it is halved.", "It can be shown that $x=3$."),
    Rule("data-shown", "data-shown", "en", "according to|look at|use the|graph|chart|table",
        r"\baccording\s+to\s+the\s+(?:table|graph|chart|diagram|schedule)(?=\s*,)|\blook\s+at\s+(?:the|this"
        r"|[A-Z]\w+['’]s)\s+(?:\w+\s+)?(?:table|graph|chart|diagram|picture|schedule|stub|receipt|menu)(?=[.,])"
        r"|\Ause\s+the\s+(?:data|table|graph|chart)\s+(?:below\s+)?to\s+answer\b|\b(?:the|this)\s+(?:circle|pie|bar"
        r"|line|frequency)\s+(?:graph|chart|table)\s+(?:shows|gives|represents|displays)\b",
        "According to the table, how much did it rise?", "Look at the two numbers, and add them."),
    Rule("illustrates", "illustrates", "any", "",
        r"\b(?:for\s+(?:example|instance)|examples?|samples?|typical|one\s+possible|an\s+illustration"
        r"|one\s+of\s+(?:the\s+)?many|one\s+way)\b|\b(?:when|for)\s+\$?\s?n\s*=|例如|比如",
        "One example is shown below.", "The board is shown below."),
    Rule("contains-figure", "contains-figure", "any", "",
        r"\[asy\]|\\begin\{(?!align|flalign)|^\s*\|.*\||\S \| \S.*\S \| \S|\\hline|<table|(?:^[ \t]{0,20}|\s\s)\$\$"
        r"|\$\$\s*\n|\\\[|\\[lc]?dots\b|^\s*[-*•]\s|```", "| x | 1 |\n| f | 3 |", "The table is below."),
    Rule("table-in-words", "contains-figure", "zh", "",
        r"表[^。．：:]{0,60}(?=[：:])(?:(?:[^\n]*?[：:]\s*\d){3}|(?:[^\n]*?\d[\d.]*(?![\d.])){5})",
        "收费如下表：起步价：8元，单价：2元，燃油费：1元", "收费如下表：8元"),
    Rule("points-at-picture", "points-at-picture", "en", "",
        r"\b(?:figures?|diagrams?|pictures?|charts?|illustrations?|sketch|plots?|map|fig\.|(?:this|these|each"
        r"|the\s+(?:same|given))\s+(?:shape|cube|net|pattern|piece|tile|card)s?)|\b(?:shown|pictured|illustrated"
        r"|depicted|shaded|gr[ae]y|dotted|dashed|dark|bold)\b|\b(?:below|beside|adjoining)\b|\bfollowing\b"
        r"|\byou\s+(?:can\s+)?see\b|(?<!on the )\btables?\b(?!\s+of\s)|\bgraphs?\b(?!\s+of\s)|\b(?:number\s+line"
        r"|symbols?|arrows?|maze|boxes)\b|\A[^.?!\n]{0,50}\b(?:this|these)\s+(?!(?:year|month|week|morning|game|way"
        r"|case)s?\b)[a-z]|[图影]|所示",
        "What fraction of the square is shaded?", "Five cups stand on the table in order."),
    Rule("fact", "fact", "en", "",
        r"[A-Z]\}?\s*=|=\s*\\?[a-z]*\{?[A-Z]|\d\s*\^?\{?\\?circ|\d\s*\\mathrm|\b(?:rectangle|square|trapezoid"
        r"|parallelogram)\s+\$|\btriangle\s+\$?\\?[a-z]*\s?[A-Z]|\bmid-?points?|perpendicular|parallel|\\perp|tangent"
        r"|isosceles|equilateral|regular|\bright[- ](?:angled?|triangle)|bisect|inscribed|\bcent(?:er|re)s?\b"
        r"|intersect|\blies?\s+on\b|radi(?:us|i)\b|diameter|\bside\s+lengths?|congruent",
        "$M$ is the midpoint of $AB$.", "Five cups stand in a row."),
    Rule("only-shown", "only-shown", "any", "",
        r"shaded|gr[ea]y\b|\bdark|marked|\bblack|\bwhite|colou?red|\btables?\b|\bgrid|\bnumbers?\b(?!\s+of\b)"
        r"|which\s+of|\bshape|pattern|\bmap\b|\bgraph|chart|\bdots\b|\bcubes?\b|\bpieces?\b|\bdice|\btile|region"
        r"|indicated|labell?ed|arrow|\bbold|dotted|dashed|\bpath|\bstrip|\bdivided\s+into[^.]{0,60}\bas\s+(?:shown"
        r"|seen|in)\b|how\s+many(?!\s+degrees)|阴影|关系如图",
        "Find the area of the shaded region.", "Find the area of $ABC$."),
    # Proofs, reasons and answers of which many are right.
    Rule("prove", "proof", "en", "prov|show|verif|demonstrat|proof",
        rf"{_START}(?:carefully\s+|formally\s+)?(?:prove|show|demonstrate|verify|disprove)\s+(?:that|it\b"
        r"|the\s+(?:following|identity|inequality|statement)|[$\\(]|for\s+(?:all|any|every)|by\s)"
        r"|\b(?:prove or disprove|(?:write|give) a proof)\b",
        "Let $n$ be odd. Prove that $n^2$ is odd.", "It can be shown that the limit exists."),
    Rule("prove-zh", "proof", "zh", "证", r"求证|试证|证明(?!书|了)[:：，,]?", "证明：$a>0$。", "他有一张证明书。"),
    Rule("own-result", "own-result", "en", "",
        r"\b(?:prove|verify|justify)\s+(?:it\b(?!\s+is)|your)|\b(?:prove|show)\s+that\s+(?:your|this\s+answer"
        r"|(?:there\s+(?:is|are|exists?)\s+no|these\s+are|this\s+is)\s+(?:the\s+)?(?:more|other|further|all|only))",
        "Find all solutions, and prove that there are no more.", "Prove that there are no solutions."),
    Rule("explain", "reasons", "en", "explain|justif|defend|clarify|discuss|comment|why|explanation|reason",
        r"(?:\A|[,:;]\s*|\b(?:and|then|please|briefly|or|to)\s+)\(?(?:explain|justify|defend|clarify|discuss"
        r"|comment\s+on)\b(?!\s+the\s+(?:result|symbol)|[^.]*\bclassmates)|\bwhy\s*(?:not|or\s+why\s+not)?\s*[?.]"
        r"|\A\W*(?:(?:tell|show)\s+(?:me|us)\s+)?why\b|\bgive\s+(?:a\s+|your\s+)?(?:reasons?|reasoning|justification"
        r"|an?\s+explanation)", "Explain your answer.", "He could not explain it to Ann."),
    Rule("explain-zh", "reasons", "zh", "理|原|为什么|解释",
        r"说明(?:你的)?(?:理由|原因)|为什么|(?<!不要写)(?<!不要做)(?<!任何)(?<!不要)(?<!无需)(?<!不用)解释",
        "它是偶数吗？为什么？", "说明书有几页？"),
    Rule("one-example", "open-ended", "en", "example|possible|vary|create|make up|invent|come up",
        r"\b(?:give|find|provide|write|construct|state|list|make\s+up|create)\s+(?:me\s+)?(?:(?:an|one|two|three"
        r"|another|some)\s+(?:\w+\s+)?examples?|(?:one|an?y?)\s+possible)\b|\banswers?\s+(?:may|will|can"
        r"|could)\s+vary|\b(?:create|make up|invent|come up with)\s+an?\s+\w*\s*(?:equation|problem|expression"
        r"|sequence|example|function)", "Find one possible value of $m$.", "For example, find the value of $m$."),
    Rule("matrices-such-that", "open-ended", "en", "matrices",
        r"\bfind\s+(?:two|three|(?:non-?zero|[$\\\w ]{0,20}?times[$\\\w ]{0,20}?)[\s-]{0,3})\s*matrices\b[^.?]{0,200}"
        r"\bsuch that",
        "Find $2 \\times 2$-matrices $A$ and $B$ such that $AB=0$.", "Find the matrices such that $AB=0$."),
    Rule("one-example-zh", "open-ended", "zh", "一个|例|生成|任|不唯一|即可",
        r"写出一个|的一个(?:可能的?)?(?:取值|值)(?:可以)?[为是]|举出?一?个?例|\A生成一|任意?写|答案不唯一"
        r"|即可[)）。]?|创建一个|请?构造一个", "写出一个偶数。", "一个偶数是几？"),
    Rule("part-proves", "part-proves", "any", "prove|show that|verify|证|理由",
        r"证明|求证|说明理由|\b(?:prove|show that|disprove|verify that)\b", "求证：$a>0$", "求 $a$"),
    Rule("part-finds", "part-finds", "any", "",
        r"(?:[,，、.．。并再\s]|\A)求(?!证)|讨论|\b(?:and|then)\s+(?:find|determine|compute)\b",
        "证明它是奇数，并求它", "求证：$a>0$"),
    Rule("part-asks", "part-asks", "any", "",
        r"\A\W*(?:(?:if|when|given|let|suppose|for|assuming|hence|using|若|当|已知|在|设)[^.?。？]{0,200}?[,，]\s*)?"
        r"(?:then\s+|please\s+|also\s+|试|请|则)?(?:(?:find|compute|calculate|determine|evaluate|solve|prove|show"
        r"|what|how|why|explain|express|write|sketch|draw|construct|state|estimate|describe|simplify)\b"
        r"|(?:分别)?(?:求|计算|证明|写出|说明|化简|判断|讨论|估计|确定|画出|设计))|\A(?:(?![.。;；]\s*\n\s*\n)[^？?]){"
        r"0,120}?(?:化[为成]|何值|(?:[,，、.．。]|并|再|请|试|分[别別])\s*(?:求|计算|证明|写出|说明|化简|判断|讨论"
        r"|估计|确定))|\A(?:\$[^$]*\$|[^.?。？\n$]){0,300}[?？]", "If $a=1$, find $b$.", "The number is odd. Find it."),
    # What a sentence asks for, formulas masked.
    Rule("task-verb", "task", "en", "",
        r"(?:\A|[,:，：]\s*|\b(?:and|then|also|please|to\s+do\s+so|hence)\s+|\A[-*•]\s*|\)\s*|Ξ\s*(?=(?-i:[A-Z]))"
        rf"|(?:\A\W*|,\s?|\bthen\s+)try\s+to\s+|\A(?:now\s+|then\s+)?use\b[^.?!]{{1,90}}?\bto\s+)(?:{_TASK})\b"
        r"(?!\s*\.)|\A(?:(?:give|state|write|name)\s+(?:down\s+)?(?:the|its|all|whether|if"
        r"|both)\s+(?!(?:\w+\s+){0,2}(?:answers?|results?|solutions?|equations?|expressions?|terms?)\b|exact"
        r"|reason)|answer\s+whether\b)", "If Ξ is odd, find its root.", "He could not find it."),
    Rule("task-verb-zh", "task", "zh", "",
        r"(?:\A|[,，：:、）)]|[A-Za-z]\.)\s{0,3}(?:并|再|请|则|试|分别|直接|并且|然后|进而){0,2}\s{0,3}(?:求|计算"
        r"|写出|化简(?!后|[^，,。]{0,8}时)|判断|讨论|确定|解(?:方程|不等式|下列)|说明(?!你?的?(?:理由|原因))|因式分解)",
        "若Ξ，求它的根。", "化简后得Ξ。"),
    Rule("narrative", "narrative", "en", "",
        r"\b(?:needs?|needed|plans?|planned|decides?|decided|going|likes?|has|had|wants?|wanted|(?<=\s)tr(?:y|ies"
        r"|ied)|asked|will\s+be\s+asked|allowed)\s+to\b|\byou\s+will\b|\A\W*each\s+\w+\s+(?:will|must|is|was|can"
        r"|may)\b|\A\W*(?:if\s[^,]{1,80},\s*)?we\s+can\b|\A\W*(?:you|he|she|they|we)\s+(?:then\s+|now\s+"
        r"|first\s+)?(?:select|choose|pick|take|draw|roll|toss|flip)s?\b",
        "He wants to solve it, and determine Ξ.", "Solve it, and determine Ξ."),
    Rule("restated", "restated", "en", "",
        r"\A\W{0,9}(?:that is|specifically|in particular|in other words|i\.e|namely|hint|for example|e\.g|as a bonus"
        r"|remember|recall|note)\b|\bwhat\s+should\s+(?:he|she|they|we|you|i)\s+do\b|\A\W*(?:it|this|that|he"
        r"|she)\s+(?:should|must|is|will)\s+(?:be\s+)?_{2,}|\b(?:separated\s+by|in\s+(?:the\s+)?order\s+of|in\s+(?:in"
        r"|de)creasing\s+order)\b|\b(?:give|express|state|write|enter|round|leave)\b[\s\S]{0,120}\b(?:your|final"
        r"|exact)\s+answers?\b", "In other words, find Ξ.", "Find the words."),
    Rule("only-yes-or-no", "restated", "en", " or ",
        r"\A\W*(?:(?:answer|say|write|reply)\s+(?:with\s+)?)?(?:yes\s+or\s+no|true\s+or\s+false|right\s+or\s+wrong)\W*\Z",
        "Yes or No?", "Is it odd, yes or no?"),
    Rule("only-why", "restated", "any", "why|how|为什么", r"\A\W{0,9}(?:why|how so|why or why not|为什么)\W{0,9}\Z",
        "Why or why not?", "Why is Ξ odd?"),
    Rule("and-if-so", "and-if-so", "en", " if ",
        r"\s*,?\s*\band\s*,?\s*if\s+(?:so|yes|not|no|it\s+(?:is|does|exists)|they\s+are)\b\s*,?\s*[a-z]+",
        "Is it odd, and if so, describe it.", "Find it if it is odd."),
    Rule("case", "case", "any", "if|若|如果",
        r"\A\W{0,9}(?:if\s+(?:so|yes|not|no|your\s+answer|it\s+(?:is|does|can|exists)|they|there\s+(?:is|are))\b"
        r"|若(?:是|能|存在)|如果(?:是|能))", "If so, find Ξ.", "If Ξ is odd, find Ξ."),
    Rule("case-of-it", "case-of-it", "en", "if",
        r"\A\W{0,9}if\s+(?:it|they|one|the\s+(?:series|integral|limit|system|sequence))\b",
        "If it converges, find its sum.", "If Ξ converges, find its sum."),
    Rule("question-word", "question-word", "any", "",
        r"\b(?:what|how|which|who|whom|whose|where|when)\b|[几何谁哪]|多少|多大|多长|多高|多远|什么|怎|多久",
        "How many?", "Is it odd?"),
    Rule("yes-or-no", "yes-or-no", "any", "",
        r"(?:\A|[,:，：]\s*|\b(?:and|then|but|so|or)\s+)(?:is|are|was|were|does|do|did|can|could|will|would|must"
        r"|should|has|have|might|may)\b(?!\s+not\s)|\b(?:whether|true or false)\b|是否|有没有|是不是|能不能|够不够"
        r"|吗\s*[?？]", "Is it odd?", "It is odd."),
    Rule("objects", "objects", "en", "and",
        rf"\b(?:{_TASK}|what\s+(?:is|are)|state|give)\s+(?!\w+\s+(?:\w+\s+)?(?:numbers?|amounts?|(?:measure|length"
        r"|age|weight|price)s)\s+of\b|the\s+(?:\w+\s+)?(?:maxima\s+and\s+minima\b|maximum\s+and\s+minimum\s+points))"
        rf"(?:an?|its?|the|their)\s+(?:[a-z][\w-]*\s+){{0,4}}?[a-z][\w-]+(?:\s*,\s*{_OBJECT})*\s*,?\s+and\s+{_OBJECT}"
        rf"|\b(?:{_TASK})\s+(?:both\s+the\b|(?:the|its)\s+(?:\w+\s+){{1,3}}Ξ)[^.;?!]{{0,60}}?\s+and\s+(?:the\s+)?"
        rf"(?:[a-z]+\s+){{1,3}}(?:Ξ|of\b|[a-z])|\b(?:{_TASK})\s+(?:the|its)\s+(?:(?!\b(?:where|that|which|whose"
        r"|between|both|sum|difference|product|ratio|through|by|with|from|when|if|in|on|to)\b)[^.;?!,]){1,80}?\s+"
        r"and\s+(?:the|its)\s+[a-z]", "Find the vertex and the radius.", "Find the number of cats and dogs, in all."),
    Rule("objects-zh", "objects", "zh", "求|写",
        r"(?:(?<!要)求|写)(?:出)?[^，,。；？?]{1,40}?(?:及|以及|和|与|、)[^，,。；？?]+",
        "求Ξ的值和Ξ的坐标。", "若要求衬衫和裤子配套，应安排几人？"),
    Rule("formulas", "formulas", "en", "and",
        r"\b(?:find|determine|compute|calculate|evaluate|what\s+are)\s+(?:each\s+of\s+)?(?:the\s+values?\s+of\s+"
        rf"(?=\$[^$]*[a-z]\()|the\s+(?:angles|lengths|areas|volumes|distances)\s+(?:of\s+)?)?{_COMPOUND}"
        rf"(?:\s*,\s*\$[^$]{{3,}}\$)*\s*,?\s+and\s+{_COMPOUND}", "Find $f(2)$ and $f(3)$.", "Find $x$ and $y$."),
    # Several things asked in one sentence, where the answer alone does not tell.
    Rule("are-both", "two-things", "en", " and ",
        r"\b(?:the|find)\s+(?:the\s+)?(?P<other>amount|rate|price|speed|cost|age|length)\s+of\s[^.?!,]{1,60}\sand\s+"
        r"(?:the\s+)?(?P=other)\s+of\s[^.?!,]{1,60}(?:\b(?:respectively\s+)?are\s*\?|\bshould\b)",
        "Find the amount of salt and amount of water he should mix.", "Find the amount of salt in the water."),
    Rule("two-counts", "two-things", "en", "and how|and by how",
        r"(?<!between )\b(?:how\s+(?:many|much|long|far|fast|old|high|tall)\b|who\b)(?![^?]{0,300}\b(?:difference|sum"
        r"|total|altogether|combined|ratio|product)\b).{1,300}?[\s,]and\s+(?:by\s+)?how\s+(?:many|much|long|far|fast"
        r"|old|high|tall)\b[^?]*\?",
        "How many boxes did he eat and how many has he left?",
        "What is the difference between how many she has and how many he has?"),
    Rule("next-problem", "two-things", "any", "next instance|question", r"<\s*(?:next instance|question)\s*>",
        "Find $m$. <Next Instance> Find $n$.", "The next question is hard."),
    Rule("two-answers", "two-things", "en", "two|separately",
        r"\b(?:return|answer|give|report|present|list)\b[^.?!]{0,30}\btwo\s+(?:answers|values|questions)\b"
        r"|\bfor\s[^.?!]{1,80}\sand\s[^.?!]{1,60}\bseparately\b",
        "What is f(2) and f(3)? Answer the two values in a list.", "Give the sum of two numbers."),
    Rule("domain-and-range", "two-things", "en", "range",
        r"\b(?:find|state|give|determine)\s+(?:the|its)\s+domain\s+and\s+(?:the\s+)?range\b",
        "State the domain and range.", "The domain and range are equal."),
    Rule("object-and-its-other", "two-things", "zh", "及|和",
        r"[求出算][^，,。；？?]{0,80}的[^的之和及，,。；？?$]{2,8}(?:以及|及|和)其?[^的之，,。；？?$]{2,6}[．。.；;\s]"
        r"*\Z", "求级数的收敛域及和函数。", "求级数的和。"),
    Rule("one-blank-for-two", "two-things", "en", "__|quad|( )|（",
        r"\b(?:the|its)\s+(?:\w+\s+){1,5}?and\s+(?:the\s+|its\s+)?(?:[a-z]+\s+){1,4}?of\b[^.?!]{0,200}\bare\s*[:：]?\s"
        r"*(?:_{2,}|\$?\\q?quad|[(（]\s*[)）])",
        "The coefficient and degree of $-2a^2$ are ____?", "The points of $a$ and the degree of $b$ are 3."),
    Rule("who-and-by-how-much", "two-things", "zh", "谁|哪",
        r"[谁哪][^，,。．；;？?：:\n]{1,16}[，,](?:比[^，,。]{1,6})?[多少高低贵快慢重轻大小长短远近早晚便][^，,。．；;"
        r"？?]{0,6}(?:多少|几)", "谁的速度快，快多少？", "谁的速度最快？"),
    Rule("asked-in-two-clauses", "two-things", "zh", "问",
        rf"[.．。；;？?，,]\s*问[^，,。．；;？?]{{1,20}}{_TWO_CLAUSES}",
        "甲比乙快。问共有多少个，还需几天？", "甲比乙快。问共有多少个？"),
    Rule("headed-parts", "two-things", "any", "2)|2）|2.|b)|b）|②|ii",
        r"(?:(?:请问|试?求|计算|回答|\b(?:find|determine|compute|calculate|the\s+following))\s*[:：]\s*|\b(?:find"
        r"|determine|compute|calculate)\s*\n\s*(?=(?-i:[(（](?:1|a|i)[)）])))[(（]?(?:1|a|i"
        r"|①)\s?[)）.、][^\n]{1,200}[;；。,，\n]\s*[(（]?(?:2|b|ii|②)\s?[)）.、]|(?:简算|计算|口算|解方程|化简"
        r"|求值)[．。:：]?\s*①[^\n①②]{1,200}②|\b(?:calculate|compute|evaluate|simplify|solve)\b[^.:?\n]{0,80}"
        r"(?:\bfollowing\b[^.:?\n]{0,60}:\s*1[.)]\s[^?]{1,400}?\n\s*2[.)]\s|\b(?:them|each(?:\s+of\s+them)?)\s*[:.]\s*"
        r"\n\s*\(?1[.)])|\b(?:if|when)\s*:?\s*\n\s*\(?(?-i:a)\)[^\n?]{1,200}(?<!and)[;,.]?\s*\n\s*\(?(?-i:b)\)",
        "请问：1) 通过R3的电流；2) 电压。", "简算．①125*32*25"),
    Rule("several-measures", "two-values", "en", " and |as well as",
        rf"\b(?:{_FIND})\s+both\s+the\s(?![^.?!]{{0,60}}\bcoordinates?\b)[^.?!]{{1,80}}?\sand\s+the\s"
        rf"|\b{_FIND}(?:\s+the(?:\s+(?!(?:of|between|in|that)\b)\w+){{1,4}},){{2,4}}\s+and\s+the\s|\b(?:{_FIND}"
        rf"|what\s+(?:is|are))\s+(?:the|its)\s+(?:\w+\s+)?{_MEASURE}(?:\s+(?:in|on)\s+the\s+\w+)?\s+and\s+(?:the\s+"
        rf"|its\s+)?(?:\w+\s+){{0,2}}{_MEASURE}\b|\b(?:{_FIND}|what\s+(?:is|are))\s+the\s+(?P<what>(?!sum|product"
        r"|difference|ratio|number)\w+)\s+of\s[^.?!]{1,60}\sand\s+the\s+(?P=what)\s+of\b(?!\s+\w+\W{1,3}is\b)"
        r"|\b(?:find|compute|calculate|determine)\s[^.?!]{5,200}\bas\s+well\s+as\s+(?:the|all|its|find)\b",
        "Find the sample mean and sample variance.", "Find the sum of the mean and 3."),
    Rule("question-and-question", "two-values", "en", " and ",
        r"\b(?:what|how)\b[^?.]{5,200},\s+and\s+(?:did|does|is|are|was|were|will)\s+(?:she|he|it|they)\b[^?]{0,200}\?"
        r"|\b(?:what|how|who|where|which)\b[^?]{3,300}[,\s]and\s+what\s+(?:is|are|was|were)\b[^?]{0,300}\?",
        "What is his speed, and what is that of the boat?", "What is the sum of 2 and 3?"),
    # The same, where the answer holds several values.
    Rule("each-of-these", "each", "en", "following",
        rf"\beach\s+of\s+the\s+following\s+[a-z]|\b(?:{_FIND}|normalize|dimensions\s+of|lengths?\s+of)\s+the\s+"
        r"following\s+(?:vectors|matrices|integrals|limits|derivatives|determinants|products|sums|expressions|angles"
        r"|polynomials)\b", "Find the length of each of the following vectors.", "Solve the following equations."),
    Rule("probability-of-each", "each", "en", "probability",
        r"\bprobability\s+(?:that|of)\b[^.?]{0,60}\d\s*,\s*\d[^.?]{0,20}\band\s+\$?\d",
        "Find the probability that he gets $0, 1$, and 2 hits.", "Find the probability of 1 and 2."),
    Rule("once-more", "each", "en", "and also|and then",
        r"\b(?P<way>using|with|for|at|when)\b[^.?]{1,80}\band\s+(?:also|then)\s+(?P=way)\b",
        "Approximate the area using 4 rectangles and also using 8.", "Find it using 4 and then 8."),
    Rule("two-clauses", "each", "zh", "多少|几",
        _TWO_CLAUSES, "有客房几间，房客几人？", "甲、乙各有几人？"),
    Rule("respectively", "separate-answers", "any", "respectively|separately|分别",
        r"\b(?:respectively|separately)\s*[?.:]*\s*\Z|分别[^。，,．]{0,14}[。．.]?\s*\Z",
        "How many terms and variables are there, respectively?", "它们分别是 3 和 5，求和。"),
    Rule("counts-of-two", "separate-answers", "en", "how many",
        r"\bhow\s+many\s+[^,?]{2,40}\s+and\s+[^,?]{2,40}\s(?:do|does|did|are|were|has|have)\b[^?]{0,200}\?",
        "How many boxes of white and colored chalk did it buy?", "How many boxes did it buy?"),
    Rule("simplify-then-evaluate", "each", "zh", "先化简", r"先化简\s*[,，]?\s*(?:然后|再)?\s*求值",
        "先化简, 再求值: $a(a+1)-a$", "Simplify $a(a+1)-a$."),
    Rule("of-both-alike", "same-question", "zh", "求", r"求.{0,80}(?:各|分别)|求\s*[a-z]\s*[和、]\s*[a-z]\s*的?值",
        "求x和y的值。", "求x和它的根。"),
    Rule("sum-of-letters", "intermediate-step", "en", "",
        rf"\b(?:(?:{_FIND}|(?<!then )what\s+is)\s+(?:the\s+value\s+of\s+)?|the\s+value\s+of\s+)\$(?:[^$]*[A-Za-z}}"
        r"|]\s*(?:[-+]|(?=[^$]*\\[dt]?frac))[^$]*|\\[dt]?frac\s*\{[a-z]+\}\s*\{[a-z]+\})\$(?:\s+is)?[\W_]*\Z",
        "Find the root in the form $\\sqrt{a}-b$. Find $a+b$.", "Find $a$."),
    Rule("sum-of-letters-zh", "intermediate-step", "zh", "",
        r"(?:表示|表达|写|化简?|转换|转化)(?:成|为|作)[\s\S]{0,120}(?:求|计算)",
        "解可表达为形式 $a<x<b$。求 $a+b$。", "求 $a$。"),
    Rule("result-of-steps", "intermediate-step", "en", "",
        r"\b(?:what\s+(?:is|was)\s+(?:the|your|his|her|their)\s+(?:(?:final|resulting|last)\s+\w+|(?:final\s+)?result)"
        r"|(?:what|which)\s+(?:number|value|result)\s+(?:do|does|did|will)\s+\w+\s+(?:get|have|obtain|end\s+up\s+with)"
        r"(?:\s+(?:in|at)\s+the\s+end)?)\W*\Z",
        "Square 3. Find half of it. What is the final number?", "Find the roots. What is their sum?"),
    Rule("asks-for-an-option", "of-options", "any", "which|下",
        r"\bwhich\s+(?:one\s+)?of\s+(?:the\s+following|these)\b|\bwhich\s+(?:option|choice|answer)\s+is\b"
        r"|\bis\s+between\s+which\b|下[列面][^，,。？?]{0,12}的[是有]",
        "Which of the following is right?", "Which number is right?"),
    Rule("form-of-the-answer", "form", "en", "",
        r"\A\W*(?:give\s+all|(?:list|indicate|specify|find|provide|consider)\s+all\s+(?:the\s+)?possible\s+(?:options"
        r"|answers|variants|cases|possibilities)\b|write\s+the\s+(?:letters|digits|numbers|coordinates)|(?:state|give"
        r"|list|write)\s+the\s+\S+\s+\w+\s+first\b|express\s+the\s+(?:\S+\s+and\s+\S+\s+coordinates\s+as\b"
        r"|\w+\s+in\s+the\s+form\b)|express\s+(?:the|its|this)\s+(?:\w+\s+){1,2}(?:as\s+an?\s+(?:\w+\s+)?(?:decimal"
        r"|fraction|percent\w*|number|integer|ordered)|in\s+(?:simplest|lowest)))",
        "Express the ratio as a decimal.", "Express $u$ in terms of $v$."),
    Rule("form-of-one-word", "form", "en", "",
        r"\A\W*(?:please\s+)?(?:give|write|state|name|enter|provide)\s+(?:only\s+)?(?:the|its|this|that)\s+(?:full\s+)?"
        r"(?:letters?|number|numeral|digits?|weekday|day|date|month|year|word|name|value|fraction|decimal|percentage)"
        r"(?:\s+names?)?(?:\s+(?:only|in\s+(?:full|words|digits|figures|numerals|letters|(?:\w+\s+)?form|capitals"
        r"|English)|as\s+an?(?:\s+\w+){1,3}|as\s+(?:digits|words|numerals)|with\s+a\s+capital\s+letter))*\W*\Z",
        "State the number as a numeral.", "State the number of its axes."),
    Rule("form-of-yes-or-no", "form", "en", "whether",
        r"\A\W*(?:state|say|answer|write|tell)\s+whether\s+(?:it|this|that|the\s+(?:statement|claim))\s+is\s+"
        r"(?:true|false|right|wrong|correct)\b", "State whether it is true or false.", "State whether 7 is prime."),
)  # fmt: skip

RULES = RuleTable((*_STATEMENT_RULES, *ANSWER_RULES))
