"""The espeak-ng synthesiser: text in, waveform with exact word and phone times out.

The only file that touches espeak-ng (GPL-3); it loads the shared library that the pip package `espeakng-loader` carries
(the extra `synth`) and speaks to its C interface (`speak_lib.h`) through ctypes. The library keeps global state
(pitch flutter, noise generators), so every utterance is spoken by a freshly loaded library: same text and voice, same samples, in
any order and in any process (about 380 x real time a core, loading included).
"""

from __future__ import annotations

import _ctypes
import ctypes
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speechssl.errors import MissingExtra

_SYNCHRONOUS, _CHARS_UTF8, _SSML_OFF, _POS_CHARACTER = 2, 1, 0, 1
_PHONEMES = 0x100  # [[...]] in a text holds phones
_EVENT_END, _EVENT_WORD, _EVENT_PHONEME = 0, 1, 7
_INIT_PHONEME_EVENTS = 1
_RATE, _PITCH, _RANGE, _WORDGAP = 1, 3, 4, 7


class _EventId(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # milliseconds
        ("sample", ctypes.c_int),  # samples, exact
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    ]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class Voice:
    """One synthetic speaker; of espeak-ng, `language` and `variant` are espeak-ng names (`en-us`, `m3`)."""

    name: str  # the speaker's name in manifests
    language: str
    variant: str
    rate: int = 175  # words a minute, 80 to 450
    pitch: int = 50  # 0 to 99
    range: int = 50  # 0 (monotone) to 99
    engine: str = "espeak-ng"  # the synthesiser; of another one only `variant` counts, see `synth.synthesisers`


@dataclass(frozen=True)
class Mark:
    """A piece of an utterance: its text, and its half-open time in samples at the synthesiser's rate."""

    text: str
    start: int
    end: int
    position: int = -1  # of a word: its first character in the text


@dataclass(frozen=True)
class Spoken:
    samples: np.ndarray  # (N,) int16
    sample_rate: int  # Hz
    words: tuple[Mark, ...]  # text is the piece of the input; for Mandarin a mark is one syllable
    phones: tuple[Mark, ...]  # text is the espeak-ng phone mnemonic, stress marks removed
    all_phones: tuple[str, ...] = ()  # those too that have no time of their own: an l may share that of the vowel before it


@dataclass(frozen=True)
class _Timed:
    type: int
    sample: int
    position: int  # 1-based character position in the text
    name: str  # of a phone, stress marks removed; "_" for a pause


_STRESS = re.compile("[',%=]+")
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+")  # a Chinese character, or what white space separates


@contextmanager
def _fresh_library(voice: Voice) -> Iterator[tuple[ctypes.CDLL, int]]:
    """Load the library anew (its statics decide the noise and flutter of the voice) and set the voice."""
    try:
        import espeakng_loader
    except ImportError as error:
        raise MissingExtra("synthetic speech", "synth") from error
    ctypes.CDLL(None).srand(1)  # the library draws breath noise from the C library's generator
    lib = ctypes.CDLL(espeakng_loader.get_library_path())
    try:
        rate = lib.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _INIT_PHONEME_EVENTS)
        if rate <= 0:
            raise OSError("espeak-ng found no voice data; reinstall the package espeakng-loader")
        name = f"{voice.language}+{voice.variant}" if voice.variant else voice.language
        variants = Path(espeakng_loader.get_data_path()) / "voices" / "!v"
        if voice.variant and not (variants / voice.variant).is_file():  # espeak-ng would leave the variant out
            raise ValueError(f"espeak-ng has no variant {voice.variant!r}")
        if lib.espeak_SetVoiceByName(name.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {name!r}")
        for parameter, value in ((_RATE, voice.rate), (_PITCH, voice.pitch), (_RANGE, voice.range)):
            lib.espeak_SetParameter(parameter, value, 0)
        yield lib, rate
    finally:
        lib.espeak_Terminate()
        _ctypes.dlclose(lib._handle)


def speak_phones(phones: Sequence[str], voice: Voice) -> Spoken:
    """Synthesise a word from phones as `pronounce` gives them with their stress. Raises as `speak`."""
    return speak(f"[[{'|'.join(phones)}]]", voice, _PHONEMES)


def speak(text: str, voice: Voice, flags: int = 0) -> Spoken:
    """Synthesise one sentence. Raises ValueError when espeak-ng does not know the voice or cannot speak the text."""
    chunks: list[np.ndarray] = []
    events: list[_Timed] = []

    def receive(wave, count, pointer):  # type: ignore[no-untyped-def]  # called from C
        if wave and count > 0:
            chunks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        i = 0
        while (event := pointer[i]).type != _EVENT_END:
            name = event.id.string.decode(errors="replace") if event.type == _EVENT_PHONEME else ""
            name = "_" if name.startswith("_") else _STRESS.sub("", name)
            events.append(_Timed(event.type, event.sample, event.text_position, name))
            i += 1
        return 0

    callback = _Callback(receive)  # kept alive until the library is closed
    data = text.encode()
    with _fresh_library(voice) as (lib, rate):
        lib.espeak_SetSynthCallback(callback)
        if lib.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, _POS_CHARACTER, 0, _CHARS_UTF8 | flags, None, None) != 0:
            raise ValueError(f"espeak-ng could not speak {text!r} with voice {voice.name}")
    samples = np.concatenate(chunks) if chunks else np.zeros(0, np.int16)
    # pauses keep espeak-ng's name for them (`_`); phones without a time of their own are dropped
    voiced = [e for e in events if e.type == _EVENT_PHONEME]
    ends = [e.sample for e in voiced[1:]] + [len(samples)]
    phones = tuple(Mark(e.name, e.sample, end) for e, end in zip(voiced, ends, strict=True) if end > e.sample)
    return Spoken(samples, rate, _words(text, events, len(samples)), phones, tuple(e.name for e in voiced))


def pronounce(words: Sequence[str], language: str, stress: bool = False) -> list[list[str]]:
    """The phones of words that are read one by one; nothing is spoken. language: espeak-ng's name; stress: keep its marks.

    Raises ValueError when espeak-ng does not know the language.
    """
    found = []
    with _fresh_library(Voice("", language, "")) as (lib, _):
        lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        for word in words:
            text = ctypes.c_char_p(word.encode())
            phones = lib.espeak_TextToPhonemes(ctypes.byref(text), _CHARS_UTF8, ord("|") << 8) or b""
            plain = (phone if stress else _STRESS.sub("", phone) for phone in re.split(r"[|\s]+", phones.decode(errors="replace")))
            found.append([phone for phone in plain if phone and not phone.startswith("_")])
    return found


def _words(text: str, events: list[_Timed], total: int) -> tuple[Mark, ...]:
    """One mark a word of the text. A word ends where the next one, or the pause after it, begins.

    espeak-ng gives one event for pairs it reads as one ("of the"); the second word then shares the time by its letters.
    """
    starts = {e.position - 1: e.sample for e in reversed(events) if e.type == _EVENT_WORD}
    borders = sorted(set(starts.values()) | {e.sample for e in events if e.type == _EVENT_PHONEME and e.name == "_"} | {total})
    tokens = [(m.start(), m.group()) for m in _TOKEN.finditer(text)]
    groups: list[list[tuple[int, str]]] = []
    for token in tokens:
        if token[0] in starts or not groups:
            groups.append([])
        groups[-1].append(token)
    marks: list[Mark] = []
    for group in groups:
        start = starts.get(group[0][0], 0)
        end = next((b for b in borders if b > start), total)
        letters = np.cumsum([0] + [len(word) for _, word in group])
        edges = start + (end - start) * letters // letters[-1]
        marks += [Mark(word, int(a), int(b), place) for (place, word), a, b in zip(group, edges, edges[1:], strict=False)]
    return tuple(marks)
