"""What is said in MiniSUPERB: the words of Speech Commands, commands after Fluent Speech Commands, and speaking styles.

The keywords and the unknown words are those of Speech Commands v1 (arXiv 1804.03209); actions, objects and locations, with their 31
combinations, are those of Fluent Speech Commands (arXiv 1904.03670, table 1), the phrases are our own.
"""

from __future__ import annotations

from dataclasses import dataclass

KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN_WORDS = (
    *("bed", "bird", "cat", "dog", "happy", "house", "marvin", "sheila", "tree", "wow"),
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
)
UNKNOWN, SILENCE = "unknown", "silence"


@dataclass(frozen=True)
class Intent:
    """What a command wants, and the ways to say it. The last of them is never said in the training data."""

    action: str
    object: str
    location: str
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class Style:
    """How a style differs from the voice's own way of speaking, on average."""

    rate: float  # factor
    pitch: float  # of espeak-ng, added
    range: float  # of espeak-ng, added
    tilt: float  # of the spectrum; more is brighter
    gain: float  # dB


STYLES = {
    "neutral": Style(1.0, 0, 0, 0.0, -9),
    "excited": Style(1.15, 20, 30, 0.2, -6),
    "sad": Style(0.78, -12, -32, -0.45, -12),
    "angry": Style(1.25, -4, 12, 0.5, -3),
}

_LOCATIONS = {
    "none": "",
    "kitchen": " in the kitchen",
    "bedroom": " in the bedroom",
    "washroom": " in the washroom",
}
_IN_ROOMS = {
    ("activate", "lights"): (
        "turn on the lights{}; turn the lights on{}; lights on{}; switch on the lights{}; switch the lights on{}; "
        "i would like the lights on{}"
    ),
    ("deactivate", "lights"): (
        "turn off the lights{}; turn the lights off{}; lights off{}; switch off the lights{}; switch the lights off{}; "
        "no more lights{} please"
    ),
    ("increase", "heat"): (
        "turn up the heat{}; turn the heat up{}; increase the heat{}; increase the temperature{}; more heat{}; heat up{}; "
        "make the temperature{} higher"
    ),
    ("decrease", "heat"): (
        "turn down the heat{}; turn the heat down{}; decrease the heat{}; decrease the temperature{}; less heat{}; heat down{}; "
        "make the temperature{} lower"
    ),
}
_ANYWHERE = {
    ("increase", "volume"): "turn up the volume; increase the volume; louder; i cannot hear that; volume up",
    ("decrease", "volume"): "turn down the volume; decrease the volume; quieter; that is too loud; volume down",
    ("activate", "music"): "play music; play the music; start the music; put on some music; resume the music; music please",
    ("deactivate", "music"): "stop the music; pause the music; no more music; turn off the music; pause; end the music",
    ("activate", "lamp"): "turn on the lamp; turn the lamp on; lamp on; switch on the lamp; i need the lamp on",
    ("deactivate", "lamp"): "turn off the lamp; turn the lamp off; lamp off; switch off the lamp; i do not need the lamp",
    ("bring", "newspaper"): "bring me the newspaper; get me the newspaper; fetch the newspaper; the newspaper please",
    ("bring", "juice"): "bring me some juice; get me some juice; fetch the juice; bring the juice here; some juice please",
    ("bring", "socks"): "bring me my socks; get me my socks; fetch the socks; bring the socks here; my socks please",
    ("bring", "shoes"): "bring me my shoes; get me my shoes; fetch the shoes; bring the shoes here; my shoes please",
    ("change language", "none"): (
        "change language; switch languages; use a different language; open the language settings; another language please"
    ),
    ("change language", "chinese"): (
        "set the language to chinese; change the language to chinese; switch to chinese; use chinese; chinese please"
    ),
    ("change language", "english"): (
        "set the language to english; change the language to english; switch to english; use english; english please"
    ),
    ("change language", "german"): (
        "set the language to german; change the language to german; switch to german; use german; german please"
    ),
    ("change language", "korean"): (
        "set the language to korean; change the language to korean; switch to korean; use korean; korean please"
    ),
}  # fmt: skip


def _phrases(text: str, where: str) -> tuple[str, ...]:
    return tuple(phrase.format(where) for phrase in text.split("; "))


INTENTS = (
    *(Intent(*k, where, _phrases(t, said)) for k, t in _IN_ROOMS.items() for where, said in _LOCATIONS.items()),
    *(Intent(*k, "none", tuple(text.split("; "))) for k, text in _ANYWHERE.items()),
)
