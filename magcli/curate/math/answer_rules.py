"""The rules about options, answers, borderline rows and boilerplate; ``rules`` joins them with those on statements."""

from magcli.curate.math.rule_table import Rule

MATH_NAMES = r"sin|cos|tan|log|arctan|arcsin|arccos|max|min|mod|lim|and|the|for|or|exp|det|gcd|lcm"
# What is asked for by "which", of several that are listed as options.
_NAMES_SEVERAL = (
    r"(?:statement|graph|equation|expression|function|option|choice|answer|pair|number|inequalit|system|value|point)"
)
_BLANK_LAST = r"\s*[（(]?[^，。,]{0,12}。?\s*\Z"
_QUANTITY = r"(?:the|how\s+(?:much|many)|its|his|her|their|this|these|all|(?!a\b)[A-Za-z]\b|\$)"
# Unless it stands in the statement itself: data after a colon, or numbered questions.
_STANDS_THERE = (
    r"(?!\s+(?:\w+\s+){0,3}?\w+\s*[?:.]?\s*(?:\$|\d)|\s+(?:\w+\s+){0,8}?\w+\s*[?:.．]\s+(?:\$|\d)"
    r"|\s+questions\b|[^?]{0,60}\(1\))"
)
# Names of one value that is made of several.
_COMBINED = (
    r"(?:sum|difference|product|ratio|quotient|average|distance|area|volume|cost|price|probability|integral|degree)"
)
# Part of a person's name in credits: an initial, a name or a particle.
_NAME = r"(?:[A-Z]\.|[A-Z][\w’'-]+|de|van|von|der)"

ANSWER_RULES = (
    # Questions that make no sense without their options, and those of one quantity, which do.
    Rule("which-of-the-following", "needs-options", "en", "follow|folow",
        r"\b(?!each\s+of\s+the\s+following\s+questions)(?:which|what|one|all|any|each|some|none|only|is"
        r"|are)\s+(?:\w+\s+){0,2}?(?:the\s*)?foll?owings?\b",
        "Which of the following is a prime?", "Find the next term of the following sequence: $1, 2$"),
    Rule("the-following", "needs-options", "en", "following", rf"\bthe following\b{_STANDS_THERE}(?=[^.?]*[?:]?\s*\Z)",
        "Decipher the following table:", "Find the next term of the following sequence: $1, 2$"),
    Rule("which-of-these", "needs-options", "en", "which",
        r"\bwhich\s+(?:(?:one\s+)?of\s+(?:these|those)\b|(?:one\s+)?(?:(?:is|are)\s+(?:\W{0,2}\\\w+\{\s*)?(?:not\b"
        r"|the\s+only\b|an?\s)|can\b|could\b|might\b)|(?:fraction(?!s?\s+of\b)|ratio|sequence|sum|calculation|product"
        r"|result|decimal|percentage|card)s?\s+(?:below\s+)?(?:is|are|has|have|does|do|can|could|equals?)\b)"
        r"|\A[^$\d]{0,60}\bwhich\s+one\s+(?:is|has|does|can|could|will|would)\b[^$\d]*\Z",
        "Which could be its area?", "Find the number for which it is 3."),
    Rule("which-statement", "needs-options", "en", "which",
        r"\bwhich\s+(?!the\b|(?:number|value)\s+(?:does\s+(?!\W*not\b|n['’]t)|is\s+(?:\$*\d[\d.,]*\$*|an?|one|two"
        r"|three|four|five|ten|half|twice)\s+(?:\w+\s+){0,2}?(?:more|less|fewer|great|small|larg"
        rf"|bigg)))(?:\w+\s+){{0,2}}{_NAMES_SEVERAL}(?!s?\s+(?:comes?|should\s+come|goes|will\s+come|is\s+missing"
        r"|did))", "Which quadratic equation has no real solution?", "Which number comes next in $2, 4, 6$?"),
    Rule("of-which-many", "needs-options", "en",
        "true|best |except|that|which|satisf|choose|select|pick|closest|nearest|divisible|same as|equivalent|antide",
        r"\bmust (?:also )?be true\b|\bnot (?:necessarily )?true\b|\b(?:such\s+that|for\s+which|except|satisf(?:y"
        r"|ies))\s*[:,]?\s*\Z|\A\W*(?:choose|select|pick|circle)\b[^$\d]*\Z|\b(?:(?:closest|nearest)|(?:equivalent"
        r"|identical))\s+to\b|\bbest\s+(?:estimate|approximation)\b|\ban\s+antiderivative\s+of\b|\b(?:divisible\s+by"
        r"|(?:the\s+)?same\s+as)[\s_.．:：()（）?~\\]*\Z",
        "If $n>3$, then $x=n^2$ satisfies", "What is true of $x$? Find it."),
    # The last sentence of an opened choice compares its options: it names none itself.
    Rule("which-is-more", "points-at-options", "en", "which",
        r"(?:\A|[.,:;?!)$]\s*|\b(?:then|so|and)\s+)which\s+(?:one\s+)?(?:is|are|has|have|was|were)\s+(?:the\s+)?"
        r"(?:\w{2,}(?:er|est)|more|most|less|least|best|worse|worst)\b(?![^.?!]*\b(?:or|of)\b)[^.?!$\d]*[.?!]?\s*\Z",
        "Which is larger?", "Which is larger, a dozen or a score?"),
    Rule("which-zh", "needs-options-zh", "zh", "哪|是|为|等|不",
        r"哪个|哪些|哪一|原函数[为是]|可以分别取|(?:不会|不能|不可能)[^，。,]{0,8}的[^，。,]{0,6}[是为][^，。,]{"
        r"0,12}\Z|正确的是|错误的是|不正确|等价|(?:说法|命题|结论)[^，。,]{0,8}(?:正确|错误|成立)|(?:可以|不可能"
        rf"|(?<!最[大小多少高低])可能)(?:的?是|为|等于|经过){_BLANK_LAST}|(?:能|可以|满足|成(?!绩)"
        r"|为)[^，。,最]{1,60}的是[\s_.．:：()（）?~\\]*\Z|(?:一定|必然?|恒|不)(?:能|可能)?不?(?:成立|满足)的"
        r"|[值数]不能(?:是|为|等于|取)|(?<![大小多少高低长短]的)一[个组](?:[正负]?整数|可能的?)?(?:解|根|值"
        r"|因式)[^，。,]{0,12}[是为]\s*[（(]?[^，。,]{0,6}\Z",
        "一个整数除以 3 余 2，这个数可能是（ ）", "最大可能是多少？"),
    Rule("the-following-zh", "following-zh", "zh", "下列|下面|以下|下述", r"(?:下列|下面|以下|下述)(?!条件|看)",
        "下列数中，最小的是（ ）", "满足下列条件，求 $a$。"),
    Rule("the-following-last-zh", "following-zh-before-number", "zh", "下列|下面|以下|下述",
        r"(?:下列|下面|以下|下述)(?!条件|看)(?:[^。！？?.．，,：:]|[,，](?!\s*[那则若如])|[.．](?!\s))*[。.．]?\s*\Z",
        "下列数中，最小的是（ ）", "按以下规定收费：每人 3 元。那么共付（ ）"),
    Rule("certainly-zh", "following-zh", "zh", "一定|必",
        r"(?:(?:一定|必)(?:是|为|经过)|(?:必|一定)(?:有|属于))\s*[（(]?[^，。,]{0,12}\Z",
        "反比例函数的图象一定经过的点是（ ）", "它一定是 3，求和。"),
    Rule("then-what-zh", "then-what", "zh", "",
        r"(?:则有?|那么|可得|必有|[,，]\s*有)\s*[,，:：]?\s*[(（]?\s*(?:\$?\\q?quad\$?)?\s*[)）]*\s*[.。．]?\s*\Z",
        "设 $a=1$，$b=2$，则（ ）", "则 $a=$（ ）"),
    Rule("then-which-relation", "then-relation", "en", "then", r"\bthen\b(?:[^.?!=]*:|\s*[(（]\s*[)）]\s*[.．]?)\s*\Z",
        "Then, for all positions of $C$:", "Then the area is: 3"),
    Rule("relation", "relation", "any", "", r"[<>≤≥≠]|\\(?:[lg](?:eq?|t)|neq?)(?![A-Za-z])", "s\\le 8", "s=8"),
    Rule("numbered-options", "numbered-options", "en", "none", r"\b\d\s*[.)]\s*none\s+of\s+(?:the\s+)?above\b",
        "By: 1. Banach, 2. Riesz, 3. None of the above.", "None of the above holds."),
    Rule("one-quantity", "one-quantity", "en", "which|what",
        r"\b(?:which|what)\s+(?:one\s+)?of\s+the\s+following(\s+(?:numeric\s+|linear\s+)?(?:expression|value|number"
        r"|fraction|percentage|ratio|equation|inequalitie|function)s?)?\s+((?:is|was|gives?|represents?|shows?"
        rf"|equals?|describes?|models?|defines?|expresses|will\s+be|would\s+be)\s+(?={_QUANTITY})(?!(?<=is )the\s+"
        r"(?:original\s+)?number\s*[?.])(?!(?:the|its|their|a)\s+(?:multiple|factor|divisor|graph|best|correct"
        r"|following|reason|only|most|least|great|larg|small|high|low|equation(?!\s+of\s+the\s+(?:horizontal"
        r"|vertical|axis|directrix))|interpretation|function(?!\s+in\s+[\w-]+\s+form)|set\b|same\b"
        r"|simplest\b(?!\s+form))))|\bwhich(\s+(?:linear\s+|quadratic\s+|exponential\s+)?(?:expression|equation"
        r"|inequality|function|value|number))\s+((?:gives|represents|models|defines|expresses|describes"
        rf"|shows(?=\s+how\b)|is(?=\s+the\s+simplest\s+form\b))\s+(?={_QUANTITY}))",
        "Which of the following is the area?", "Which of the following is the best?"),
    Rule("closest", "closest", "en", "closest|nearest",
        r"\b(?:which|what)\s+(?:one\s+)?of\s+the\s+following\s+(?:\w+\s+)?(is|was|would\s+be)\s+(?:the\s+)?(?:closest"
        r"|nearest)\s+to\s+(?=the\b|its\b|his\b|her\b|their\b)",
        "Which of the following is closest to the mass?", "Which of the following is closest to 3?"),
    # Answers.
    Rule("not-one-value", "not-one-value", "any", "vary|varies|see |refer|sketch|proof|graph|不唯一|略|见",
        r"\banswers? (?:(?:may|will|can|could) )?var|\b(?:see|refer to) (?:the )?(?:solution|explanation|figure|graph"
        r"|proof|above|below)|\b(?:sketch|proof)\b|\Agraph\b|答案不唯一|\A略\Z|见解析|证明见",
        "See the solution.", "I see 3 of the solutions."),
    Rule("answers-vary", "varies", "en", "vary", r"\A\W*answers?\s+(?:will|may|can|could)\s+vary",
        "Answers will vary.", "They vary."),
    Rule("sentence-verb", "sentence", "en", "",
        r"\b(?:is|are|was|were|equals?|has|have|does|did|must|would|will|should|there|therefore|thus|hence|because"
        r"|since|otherwise|follows?|cannot|can|says?|means?|works?|when|never)\b(?![=(^_])|(?:\A|[.,]\s*)so\b"
        r"|(?-i:\bSo\b)|\A(?:yes|no)\b\W*\S+\s+\S", "Yes, it works", "3 or 4"),
    Rule("sentence-zh", "sentence", "zh", "",
        r"因此|所以|从而|因为|答案|[为是][:：]|[为是][^，,。]{0,8}[。]\s*\Z|\d[^。]{0,60}[\u4e00-\u9fff]。\s*\Z"
        r"|\A[\"“]?[\u4e00-\u9fff，、]{5,}[。！][\"”]?\Z", "多运动，早睡。", "3 或 4"),
    Rule("word-equals", "labelled-values", "en", "=",
        rf"(?<![A-Za-z\\{{-])(?!(?:{MATH_NAMES})\b)(?-i:[a-z]{{4,}})\s*\$?\s*=|\A[^$\\]*=[^$\\\n]*\n[^$\\]*=[^$\\]*\Z",
        "width $=$ height $=10$", "$x=10$"),
    Rule("labelled-values", "labelled-values", "any", "",
        r"\b(?:local|relative|absolute|global|saddle|concave|convex|increas\w*|decreas\w*|inflection|maxim(?:um|a)"
        r"|minim(?:um|a))\b|\\?\b(?:max|min)\b(?:\.?\$?\s+(?:at|of|is)\b|\s*\.\s*(?:\\left)?\()"
        r"|(?<![A-Za-z\\])[A-Za-z]{3,}\s*:[^:\n]*?\s[A-Za-z]{3,}\s*:|凹|凸|单调|极[大小]值[点为]",
        "maximum 3, minimum 1", "\\max(3, 1)"),
    Rule("a-name", "name", "en", "",
        r"\A(?!(?:All|Any|Every|Each|Both|Only|Exactly|No|None|Not|Never|Infinite(?:ly)?|Undefined|Do(?:es)?|(?:Con"
        r"|Di)verges|One|Two|Three|Four|Five|Six|Seven|Eight|Nine|Ten|Mrs?|Ms|Miss|Dr)\b)(?-i:the\s+[a-z]"
        r"|[A-Z])[A-Za-z'’-]*(?:\s+[A-Za-z][A-Za-z'’-]*){0,4}\s+[A-Za-z][A-Za-z'’-]*[a-z]\.?\Z",
        "Westford location", "Exactly two"),
    Rule("sorry", "unsolvable", "en", "sorry|cannot|can't|not |unable|information|please|need|as an ai",
        r"\A(?:I\s+am|I'm)\s+sorry\b[^.]{0,160}?\b(?:access|data|information|context|details?|provided?|retrieve"
        r"|real-time|see|know)\b|\bplease provide\b|\AAs\s+an?\s+AI\b[^.]{0,60}(?:\b(?:not|unable|no)|n[’']t)\b"
        r"|\b(?:cannot|can't|can not|unable to|not possible to|impossible to)\s+(?:be\s+)?(?:determined?|calculated?"
        r"|solved?|answered?)\b|\b(?:not enough|insufficient|need(?:s|ed)?\s+(?:more|additional))\s+"
        r"(?:\w+\s+)?information|\bwould\s+need\s+(?:to\s+know|(?:an?\s+|the\s+)?(?:\w+\s+)?(?:list|data"
        r"|information))\b",
        "I am sorry, but I do not know the class.", "I'm sorry, but my train has been late today."),
    Rule("sorry-zh", "unsolvable", "zh", "歉|遗憾|对不起|好意思|不足|无法|没|未|提供",
        r"\A(?:很|非常|我(?:很|感到|不)?|不)?(?:抱歉|遗憾|对不起|好意思)(?![^。]{0,40}(?:(?:生成|创建|创作|制作|绘制"
        r"|画|设计)[^。]{0,12}(?:图|表|海报|标志|视频)|个人喜好|主观))|信息不足|\A.{0,40}无法确定"
        r"|请(?:您)?提供(?:更多|具体)|\A.{0,12}请[您你]?提供|\A(?:您好，)?我(?:无法|没有?)(?:看到|访问|查看)"
        r"|\A.{0,40}[您你](?:并)?[没未](?:有|能)?(?:[向给为]我)?(?:任何)?(?:提供|给|告诉|指定)|\A.{0,12}(?:人工智能"
        r"|语言模型|AI)[^。]{0,20}无法(?:直接)?(?:提供|获取|获得|回答)",
        "抱歉，我不知道这个班级。", "抱歉，我无法制作海报。"),
    Rule("says-nothing", "nothing", "any", "",
        r"\A(?:the\s+(?:limit|integral|series)\s+)?(?:does|do|did)\s+not\s+(?:exist|converge|intersect)\W*\Z"
        r"|\A(?:there\s+(?:is|are)\s+)?no\s+(?:real\s+|such\s+)?\w+\W*\Z|\A(?:it\s+is\s+)?(?:undefined|impossible"
        r"|not\s+possible|not\s+an?\s+\w+)\W*\Z|\Anone\W*\Z|\A(?:无解|不存在)\W*\Z",
        "There is no real solution.", "No, 3"),
    Rule("damaged", "broken", "any", "",
        r"@|\ufffd|\A[=^_*/]|[=^_*/<>+-]\s*\$*\s*\Z|,\s*\\big(?:cup|cap)\b|,\s*,|\\frac\s*\Z"
        r"|(?<![\\A-Za-z])(?:[dt]?frac|sqrt)\s*\{|[\x00-\x08\x0b\x0c\x0e-\x1f]|(?<![\d.,/^{\\])\b\d+"
        r"(?:\.\d+)?[ \t]+\d+\.\d|\$\s*!|\d\s*\\mathbb|(?<![A-Za-z])[A-Za-z]{4,}:\s*\Z"
        r"|\\mathrm\s*\{[~\s]*\w+\}\s*x\s+\d|(?<![A-Za-z\\])[A-TV-Za-tv-z]\s*(?:\([^()\[\]]{1,60},[^()\[\]]{1,60}\]"
        r"|\[[^()\[\]]{1,60},[^()\[\]]{1,60}\))|\b(?-i:([A-Za-z]))_\{?\w+\}?\s*=[^=,;]{0,200}[-+][^=,;]{0,200}[\w}]\s"
        r"\1_\{?\w+\}?\s*=|\\right\.\s*\$\s*[^.,;\s]|(?:\A\$?|[,(\[])\s*[-+]?\s*\\propto", "5 4.6", "5, 4.6"),
    Rule("numbers-statements", "numbers-statements", "any", "",
        r"\A(?:(?:\\textcircled\s*\{?\s*\d\s*\}?|[①-⑩]|[\s,，、;；$和与]|and)+|(?:I{1,3}|IV|V)(?:\s*(?:,|and"
        r"|&)+\s*(?:I{1,3}|IV|V))+(?:\s+only)?)\Z", "①③", "1, 3"),
    Rule("number-in-words", "number-in-words", "en", "",
        r"\A[\s.$]*(?:exactly\s+|only\s+)?(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|twelve"
        r"|infinitely\s+many|once|twice|half)[\s.$]*\Z", "Exactly two", "Exactly two of them"),
    Rule("no-value", "no-value", "any", "",
        r"\b(?:none|all|both|neither|either|cannot|can't|not enough|insufficient|more information|other|(?:next|same"
        r"|following|previous)\s+day|I{1,3}\s+(?:only|and))\b|\A\s*(?:\.{3}|…)|[①②③④⑤]|以上|都不|无法|不能|均|充分"
        r"|必要|之间|\\(?:lim|sum|int|iint|oint|prod)(?![A-Za-z])|(?<![\d\u4e00-\u9fff])(?!(?<=[\d$}])(?:(?:平方"
        r"|立方)?[千厘分毫]?米|公[里斤升顷]|[千毫]克|毫?升|分钟|小时)(?![\u4e00-\u9fff]))[\u4e00-\u9fff]{2}",
        "None of these", "$3$小时"),
    Rule("no-answer", "no-answer", "any", "",
        r"\A(?:null|nan|n/?a|none|unknown|no answer|not available|tbd|[?？\-–—.\s\[\]{}()]*)\Z", "N/A", "0"),
    # What only a model may tell.
    Rule("figure-word", "figure-word", "any", "",
        r"\b(?:the|this|following|given|below|above)\s+(?:\w+\s+)?(?:figure|diagram|drawing|sketch|chart|histogram)\b"
        r"|\bshaded\b|\b(?:as|is|are)\s+(?:shown|pictured)\b|阴影|图(?![象像])",
        "Find the shaded area.", "Figure it out."),
    Rule("open-end", "open-end", "any", "",
        r"_{2,}|[(（]\s*\$?(?:\\q?quad)?\$?\s*[)）]|\[\s*\]|=\s*[\s$]*[?？]|\bsatisfy\s*[:：]?\s*\Z|(?:=|\b(?:is|are"
        r"|equals|of|to)|[为是得])\s*[\s$:：.。．]*\Z", "Then $x$ is", "Then $x$ is odd."),
    Rule("any-task", "any-task", "any", "",
        r"\b(?:simplify|factor|expand|round|write|rewrite|express|enter|give|graph|what|how|which|reduce|multiply"
        r"|divide|add|subtract|perform|use|complete|state|translate|decompose|change|name|describe|determine|find"
        r"|approximate|combine|distribute|rationalize|specify|create|encrypt|build|put|compute\s+without)\b|化简|求"
        r"|计算|多少|几", "Rationalize $1/x$.", "Let $x=3$."),
    Rule("one-value", "one-value", "en", "",
        rf"\b{_COMBINED}\s+(?:\w+\s+){{0,3}}?(?:of|between|that|for|from)\b(?![\s\S]*\band\s+(?:the\s+)?"
        rf"(?:\w+\s+)?{_COMBINED}\b)|\b(?:largest|smallest|greatest|least)\b[\s\S]*\b(?:which|such\s+that|so\s+that"
        r"|that|with)\b|\bgiven\s+that\b", "the sum of the numerator and the denominator", "the centre and the radius"),
    # What collections leave around a statement.
    Rule("credit", "credit", "any", "",
        r"(?-i:(?<=[\s.?!$)\]}:])(?P<open>\*{1,3}|_|\[i\]|\[b\])\s?[(\[]?(?:(?:[Pp]roposed|[Aa]uthor|[Ss]ource"
        r"|[Ss]ubmitted|[Cc]reated|[Ss]uggested|[Pp]osed)\b[^\n$]{0,300}?|(?:19|20)\d\d\s+[A-Z][^\n$?=]{2,150}?"
        rf"|{_NAME}(?:,?\s(?:(?:and|&)\s)?{_NAME}){{0,8}}|\d{{1,3}}\s+(?:points?|marks?))[)\]]?\.?\s?(?:(?P=open)"
        r"|\[/[ib]\]|(?<=\w))\.?\s*\Z|\n\s*[(\[]?[Pp]roposed\s+by:?\s[^\n$?]{2,150}\s*\Z)",
        "Find $x$. *Proposed by Ann Lee*", "Find $x$. *Hint: use $y$*"),
    Rule("hidden-solution", "hidden", "en", "<details|[hide",
        r"<details>\s*<summary>\s*(?:solutions?|answers?|proof|spoiler)\b[\s\S]*?(?:</details>|\Z)"
        r"|\[hide\s*=\s*\"?(?:solutions?|answers?|spoiler)\b[\s\S]*?(?:\[/hide\]|\Z)",
        "[hide=Solution]It is 3.[/hide]", "<details><summary>Hint</summary>Use 3.</details>"),
    Rule("stated-answer", "stated-answer", "en", "ans|result|solution",
        r"\n[\s*#]{0,9}(?:final\s+)?(?:answer|ans|result|solution)\b\**\s?[.:：]\**\s*([^\n]{1,200})\s*\Z",
        "Find $x$.\nAnswer: 3", "Find $x$. The answer: 3"),
    Rule("translation-asked", "translation", "any", "ranslat|保留源文本",
        r"(?:\n\s*-{3,}\s*)?\n[ \t]*(?:translat(?:e|ing)\s+the\s+(?:above\s+text|text\s+above)\b[^\n]*"
        r"|保留源文本[^\n]*|(?:the\s+above\s+text\s+is\s+already\b|here\s+is\s+the\s+translat)[^\n]*)",
        "Find $x$.\nTranslate the above text into English", "Translate the text above."),
    Rule("heading", "heading", "any", "#|solution",
        r"\n[ \t]*#{1,6}[ \t]*([^\n$?]{0,90})\s*\Z|(?<=[.?!])\s+(?-i:Solution)\s*\Z",
        "Find $x$.\n## Solution", "Find the solution"),
    Rule("picture-link", "picture", "any", "](|://",
        r"!\[[^\]\n]{0,200}\]\([^)\n]*\)|\[[^\]\n]{1,200}\.(?:png|jpe?g|gif|svg)\]\([^)\n]*\)"
        r"|\bfor\s+(?:the\s+)?(?:diagram|figure|picture),?\s+(?:go\s+to|see)\s+https?://[^\n]*",
        "See ![](https://a.org/b)", "See [this](https://a.org/b)"),
    Rule("forum-tag", "tag", "any", "[/", r"\[(b|i|u|center|quote)\]((?:[^\[]|\[(?!/\1\])){0,2000})\[/\1\]",
        "[b]Find[/b] $x$.", "Find $a[i]$ and $b[j]$."),
)  # fmt: skip
