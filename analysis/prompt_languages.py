"""Which natural and programming languages the prompts of a data set are about, by rules that can be stated and checked.

Neither is a column of the data. **Natural languages** are looked for in the multilingual categories alone, in this order until
something is found: names or code pairs in the sub-category (``German``, ``de-en``); codes in ``src_id`` (``opus100_de-en_17``); names in the
first line of the prompt (``Translate German to English:``); a script that only one large language is written in. **Programming
languages** are looked for in the coding categories: one counts once for each prompt that names it, or marks a block of code with it, in
any turn. Of SpecBench the first rule finds the two languages that the SPEED-Bench paper prints and the second its four, with two prompts for
Python instead of three: code whose language nobody names does not count here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MULTILINGUAL = frozenset({"multilingual", "translation"})
CODING = frozenset({"coding", "code"})

NATURAL_RULE = "by the sub-category, else the id of the source, else names in the prompt's first line, else its script"
PROGRAMMING_RULE = "prompts that name the language, or mark code with it, in any turn"

# ISO 639-1. The languages of OPUS-100 and of the other multilingual sources.
LANGUAGES: dict[str, str] = dict(
    re.findall(
        r"(\w\w)=(\S+)",
        """
    af=Afrikaans am=Amharic an=Aragonese ar=Arabic as=Assamese az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali br=Breton
    bs=Bosnian ca=Catalan cs=Czech cy=Welsh da=Danish de=German dz=Dzongkha el=Greek en=English eo=Esperanto es=Spanish et=Estonian
    eu=Basque fa=Persian fi=Finnish fr=French fy=Frisian ga=Irish gd=Gaelic gl=Galician gu=Gujarati ha=Hausa he=Hebrew hi=Hindi
    hr=Croatian hu=Hungarian hy=Armenian id=Indonesian ig=Igbo is=Icelandic it=Italian ja=Japanese ka=Georgian kk=Kazakh km=Khmer
    kn=Kannada ko=Korean ku=Kurdish ky=Kyrgyz li=Limburgish lt=Lithuanian lv=Latvian mg=Malagasy mk=Macedonian ml=Malayalam
    mn=Mongolian mr=Marathi ms=Malay mt=Maltese my=Burmese nb=Bokmål ne=Nepali nl=Dutch nn=Nynorsk no=Norwegian oc=Occitan or=Oriya
    pa=Punjabi pl=Polish ps=Pashto pt=Portuguese ro=Romanian ru=Russian rw=Kinyarwanda se=Sami sh=Serbo-Croatian si=Sinhala sk=Slovak
    sl=Slovenian sq=Albanian sr=Serbian sv=Swedish ta=Tamil te=Telugu tg=Tajik th=Thai tk=Turkmen tr=Turkish tt=Tatar ug=Uyghur
    uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese wa=Walloon xh=Xhosa yi=Yiddish yo=Yoruba zh=Chinese zu=Zulu
    """,
    )
)
_BY_NAME = {name.lower(): code for code, name in LANGUAGES.items()}
_NAME = re.compile(r"\b(" + "|".join(sorted(map(re.escape, LANGUAGES.values()), key=len, reverse=True)) + r")\b")
_NAME_ANY_CASE = re.compile(_NAME.pattern, re.IGNORECASE)
_PAIR = re.compile(r"(?<![A-Za-z])([a-z]{2})(?:-|_|→|->)([a-z]{2})(?![A-Za-z])")
_SCRIPTS = {  # of Japanese before Chinese: it is written with Chinese characters, too
    "ja": "\u3040-\u30ff", "ko": "\uac00-\ud7af", "zh": "\u4e00-\u9fff", "th": "\u0e00-\u0e7f", "bn": "\u0980-\u09ff", "gu": "\u0a80-\u0aff",
    "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f", "kn": "\u0c80-\u0cff", "ml": "\u0d00-\u0d7f", "ka": "\u10a0-\u10ff", "hy": "\u0530-\u058f",
    "el": "\u0370-\u03ff", "he": "\u0590-\u05ff", "km": "\u1780-\u17ff", "my": "\u1000-\u109f",
}  # fmt: skip
_LETTERS_OF_SCRIPT = 8  # fewer may be a symbol in a formula (π) or one quoted word

# A plain name is enough where it is no word of English; the others need a capital and a neighbour that makes them a language.
_PROGRAMMING = {
    "Python": r"(?i:\bpython\b)",
    "C++": r"(?i:\bC\+\+|\bcpp\b)",
    "C#": r"(?i:\bC#|\bcsharp\b)",
    "Java": r"(?i:\bjava\b)",
    "JavaScript": r"(?i:\bjavascript\b)",
    "TypeScript": r"(?i:\btypescript\b)",
    "Go": r"\bgolang\b|\bGolang\b|\b(?:in|using|with|a|into|to|for|valid|following) Go\b"
    r"|\bGo(?=[ -](?:code|function|program|language|solution|implementation|programming|method|package)\b)|```go\b",
    "Rust": r"\bRust\b|```rust\b",
    "Kotlin": r"\bKotlin\b|```kotlin\b",
    "Swift": r"\b(?:in|using|with|a|into|to) Swift\b|\bSwift(?= (?:code|function|program|language|solution))|```swift\b",
    "Ruby": r"\bRuby\b|```ruby\b",
    "PHP": r"(?i:\bphp\b)",
    "SQL": r"(?i:\bsql\b)",
    "Bash": r"(?i:\bbash\b)",
    "HTML": r"(?i:\bhtml\b)",
    "CSS": r"(?i:\bcss\b)",
}
_PROGRAMMING_PATTERNS = {name: re.compile(pattern) for name, pattern in _PROGRAMMING.items()}


def natural_languages(sub_category: str, src_id: str, turns: Sequence[str]) -> frozenset[str]:
    """ISO 639-1 codes of the languages of one multilingual prompt; empty if the rule finds none."""
    first_line = turns[0].strip().split("\n", 1)[0] if turns else ""
    return (
        _named(sub_category, _NAME_ANY_CASE)
        or _codes(sub_category)
        or _codes(src_id)
        or _named(first_line, _NAME)
        or _by_script("".join(turns))
    )


def programming_languages(turns: Sequence[str]) -> frozenset[str]:
    """Names of the programming languages that one coding prompt mentions."""
    text = "\n".join(turns)
    return frozenset(name for name, pattern in _PROGRAMMING_PATTERNS.items() if pattern.search(text))


def _named(text: str, names: re.Pattern[str]) -> frozenset[str]:
    found = {_BY_NAME[name.lower()] for name in names.findall(text)}
    return frozenset(found - {"no"} if found & {"nb", "nn"} else found)  # "Norwegian Nynorsk" is one language


def _codes(text: str) -> frozenset[str]:
    """Codes that stand in a pair, or alone between separators: ``de-en``, ``mmath_th_12``, ``fr``."""
    in_pairs = {code for pair in _PAIR.findall(text) if set(pair) <= LANGUAGES.keys() for code in pair}
    return frozenset(in_pairs or {part for part in re.split(r"[_/:.\s-]", text) if part in LANGUAGES})


def _by_script(text: str) -> frozenset[str]:
    for code, letters in _SCRIPTS.items():
        if len(re.findall(f"[{letters}]", text)) >= _LETTERS_OF_SCRIPT:
            return frozenset({code})
    return frozenset()
