"""What kind of answer a question has, by a rule: for error analysis, not for scoring.

The kinds follow those that answers of SQuAD were sorted into by hand (Rajpurkar et al. 2016, table 2), as far as a rule can tell
them: the question word decides where it says enough ("who", "how many", 什麼時候), else the form of the answer does. Rules are
tried in order, the first that fits counts:

    date          asked for by "when", "what year", ... (什麼時候, 哪一年, ...), or the answer holds a month, a day or a year
    number        asked for by "how many", "how much", ... (多少, 幾), or the answer begins with digits or a number word
    person        asked for by "who", "whose", "whom" (誰, 哪位, 何人)
    place         asked for by "where", "what city", ... (哪裡, 何處, 哪個國家, ...)
    reason        asked for by "why" (為什麼, 為何)
    manner        asked for by "how" (如何, 怎麼)
    clause        the answer has CLAUSE words or more (zh: as many characters as CLAUSE_ZH)
    proper noun   en: every word of the answer but small ones begins with a capital, in a text that has any small letters
    other         anything else, mostly common noun phrases
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from speechssl.text import answer_tokens, language_of

TYPES = ("date", "number", "person", "place", "reason", "manner", "clause", "proper noun", "other")
CLAUSE, CLAUSE_ZH = 8, 15

_PLACES = "city|town|country|state|place|location|region|continent|village|street|county|province|nation|island|river"
_TIMES = "year|date|day|month|century|decade|season|time"
_MEASURES = "many|much|old|long|far|often|tall|high|large|big|fast|deep|heavy|wide"
_ASKED_EN = {
    "date": rf"\bwhen\b|\b(?:what|which) (?:{_TIMES})\b|\bhow long ago\b",
    "number": rf"\bhow (?:{_MEASURES})\b|\bwhat (?:percentage|number|age)\b",
    "person": r"\b(?:who|whom|whose)\b",
    "place": rf"\bwhere\b|\b(?:what|which) (?:{_PLACES})\b",
    "reason": r"\bwhy\b",
    "manner": r"\bhow\b",
}
_ASKED_ZH = {
    "date": "什[麼么]時候|什么时候|何時|何时|哪[一]?[年天日月]|幾[年月]|几[年月]|西元幾|哪個(?:世紀|年代|朝代|時期)",
    "number": "多少|幾|几|多[大長长高遠远重久]",
    "person": "誰|谁|哪[一]?位|何人|什[麼么]人|哪[個个]人",
    "place": "哪[裡裏里兒儿]|何處|何处|何地|什[麼么]地方|哪[一]?[個个座](?:國家|国家|城市|地方|省|州|島|地區|縣|市)",
    "reason": "為什麼|为什么|為何|为何|何故",
    "manner": "如何|怎[麼么樣样]",
}
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|spring|summer|autumn|winter"
_UNITS = "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|half|hundred|thousand"
_FORM_EN = {
    "date": rf"\b(?:{_MONTHS})\b.*\d|\d.*\b(?:{_MONTHS})\b|^(?:the )?(?:{_DAYS})\b|^(?:in )?(?:1[0-9]|20)\d\d(?:s|\b)|\bcentury\b",
    "number": rf"^\W*(?:about |around |over )?(?:\d|(?:{_UNITS}|{_TENS})\b)",
}
_FORM_ZH = {
    "date": r"\d+\s*[年月日]|[一二三四五六七八九十〇零百千]+[年月日](?!本)|世紀|年代",
    "number": r"^\s*(?:約|约|近|超過)?[\d一二兩三四五六七八九十百千萬億]+",
}
_SMALL = frozenset("a an the of and in on at for to de la von van der".split())


def answer_type(question: str, answer: str, language: str) -> str:
    """One of TYPES. Raises InputError for a language without text rules."""
    words = answer_tokens(answer, language)
    chinese = language_of(language) == "zh"
    asked, form = (_ASKED_ZH, _FORM_ZH) if chinese else (_ASKED_EN, _FORM_EN)
    if found := _first(asked, question.lower()) or _first(form, answer.lower()):
        return found
    if len(words) >= (CLAUSE_ZH if chinese else CLAUSE):
        return "clause"
    return "proper noun" if not chinese and _proper(answer, question) else "other"


def _first(rules: Mapping[str, str], text: str) -> str:
    """The first type whose expression occurs in the text; "" for none."""
    return next((name for name, rule in rules.items() if re.search(rule, text)), "")


def _proper(answer: str, question: str) -> bool:
    """Whether every word that matters begins with a capital, in a text where that says something."""
    words = [w for w in re.findall(r"[^\W\d_]+", answer) if w.lower() not in _SMALL]
    written = any(c.islower() for c in answer + question)
    return bool(words) and written and all(w[0].isupper() for w in words)
