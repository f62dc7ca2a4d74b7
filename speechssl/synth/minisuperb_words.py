"""Commands with slots, after SNIPS (arXiv 1805.10190): its intents and names of slots, our own phrases and values.

The values of the open slots (OPEN) belong to splits, by the hash that MiniSQA uses: training has about 70 % of them; dev and test
have those and new ones (10 % and 20 % of all). The values of the other slots, and the phrases, are the same in all splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE, duration, resample, write_flac
from speechssl.data.utterances import Slot, Utterance
from speechssl.synth.espeak import Spoken, Voice, speak
from speechssl.synth.minisqa import speakers
from speechssl.synth.minisqa_text import generate_passage, load_language, split_of

# The phones of PR: those that espeak-ng spoke, named as in the CMU dictionary (39, as LibriSpeech's are without stress).
#
# espeak-ng distinguishes 66 in English. Variants of one phone have one name here: the flap and the unreleased t are T, a vowel that
# is short where it has no stress is that vowel, and every schwa is AH. A vowel with an r in it is two phones, as in the dictionary;
# the r that links it to a vowel after it is no further one. Pauses and the glide between two vowels (`;`) are left out.

_CONSONANTS = (
    "p P, b B, t T, t# T, t2 T, ? T, d D, k K, g G, f F, v V, T TH, D DH, s S, z Z, S SH, Z ZH, h HH, tS CH, dZ JH, "
    "m M, n N, n- AH N, N NG, l L, r R, r- R, w W, j Y"
)
_VOWELS = (
    "@ AH, @2 AH, @- AH, a# AH, V AH, @L AH L, 3 ER, 3: ER, a AE, aa AE, 0 AA, A: AA, O: AO, O2 AO, E EH, I IH, I2 IH, I# IH, "
    "i IY, i: IY, U UH, u: UW, eI EY, aI AY, aU AW, OI OY, oU OW, "
    "A@ AA R, O@ AO R, o@ AO R, e@ EH R, i@ IY AH, i@3 IH R, U@ UH R, aI@ AY AH, aI3 AY ER"
)
_SILENT = ("_", ";")
NAMES: dict[str, tuple[str, ...]] = {
    **{(parts := line.split())[0]: tuple(parts[1:]) for line in f"{_CONSONANTS}, {_VOWELS}".split(", ")},
    **dict.fromkeys(_SILENT, ()),
}
PHONES = tuple(sorted({name for names in NAMES.values() for name in names}))


def phones_of(spoken: Spoken | None) -> str:
    """What was said in English, "HH AH L OW". Raises KeyError for a phone that no English word has."""
    said: list[str] = []
    for phone in spoken.said if spoken else ():
        names = NAMES[phone]
        linking = names == ("R",) and said[-1:] in (["R"], ["ER"])
        said += () if linking else names
    return " ".join(said)


# A recording as it is drawn and as it is made. Most are of one voice that speaks once: `Draw`.

SILENT = -45.0  # dB from the peak; what the synthesiser leaves before and after the speech is below


class Planned(Protocol):
    """A recording that is to be made: a frozen dataclass of all that decides its samples, `id` and `seed` among them."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def id(self) -> str: ...

    def make(self, folder: Path) -> Utterance:
        """Write its audio below the folder of its task, and return its line of the manifest."""


P = TypeVar("P", bound=Planned)


@dataclass(frozen=True)
class Draw:
    """One voice that speaks once."""

    id: str
    text: str  # "": nothing but faint background noise
    voice: Voice
    labels: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # the recording is at least so long, what is said anywhere in it
    tilt: float = 0.0  # of the spectrum: more is brighter
    gain: float = 0.0  # dB
    seed: int = 0  # of where it lies in the recording, and of the noise
    slots: tuple[Slot, ...] = ()
    matches: tuple[str, ...] = ()
    phones: bool = False  # are asked for
    folder: str = "audio"  # where its audio goes, from the folder of its task

    def make(self, folder: Path) -> Utterance:
        """A recording that another task of the same recordings made is there already."""
        path, phones = folder / self.folder / f"{self.id}.flac", ""
        if self.phones or not path.is_file():
            spoken = _speak(self)
            phones = phones_of(spoken) if self.phones else ""
            write_flac(path, _shape(self, spoken))
        name, labels = self.voice.name, self.labels
        return Utterance(
            self.id, f"{self.folder}/{path.name}", duration(path), name, labels, self.text, phones, self.slots, matches=self.matches
        )


def numbered(found: Iterator[P], key: str, name: str, count: int) -> list[P]:
    """The first of them, with ids and with seeds of their own. key: what they were drawn from."""
    return [
        replace(d, id=f"{name}-{number:05d}", seed=Random(f"{key}/{number}").getrandbits(32))
        for number, d in enumerate(islice(found, count))
    ]


def render(drawn: Draw) -> np.ndarray:
    """(N,) float32 at 16 kHz."""
    return _shape(drawn, _speak(drawn))


def _speak(drawn: Draw) -> Spoken | None:
    return speak(drawn.text, drawn.voice) if drawn.text else None


def _shape(drawn: Draw, spoken: Spoken | None) -> np.ndarray:
    """spoken: None where there is no text."""
    rng = np.random.default_rng(drawn.seed)
    if spoken is not None:
        samples = resample(spoken.samples.astype(np.float32) / 32768, spoken.sample_rate, SAMPLE_RATE)
    else:
        samples = rng.standard_normal(round(drawn.seconds * SAMPLE_RATE)).astype(np.float32)
    coloured = _tilted(samples, drawn.tilt)
    missing = max(round(drawn.seconds * SAMPLE_RATE) - len(coloured), 0)
    before = int(rng.integers(missing + 1))
    padded = np.pad(coloured, (before, missing - before))
    return np.asarray(padded / np.abs(padded).max() * 10 ** (drawn.gain / 20), np.float32)


def _tilted(samples: np.ndarray, tilt: float) -> np.ndarray:
    """Brighter (above 0) or darker (below 0) by a filter of one zero."""
    return np.asarray(signal.lfilter([1.0, -max(min(tilt, 0.9), -0.9)], [1.0], samples))


def trimmed(samples: np.ndarray) -> np.ndarray:
    """From the first sample that is loud enough for speech to the last. samples: (N,)."""
    loud = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (SILENT / 20))
    return samples[int(loud[0]) : int(loud[-1]) + 1]


# Who speaks and what is said, where every task chooses alike: voices of a split, and sentences of MiniSQA.

LANGUAGE = "en"
SENTENCE = range(6, 11)  # words; 2 to 4 seconds


def anyone(rng: Random, split: str) -> Voice:
    return rng.choice(speakers(LANGUAGE, split))


def varied(rng: Random, voice: Voice) -> Voice:
    """The voice on another day: no two recordings of it are alike."""
    return with_(voice, voice.rate * rng.uniform(0.85, 1.2), voice.pitch + rng.uniform(-12, 12), voice.range + rng.uniform(-15, 15))


def with_(voice: Voice, rate: float, pitch: float, spread: float) -> Voice:
    """Within what espeak-ng takes."""
    low, high = 0, 99
    rate, pitch, spread = min(max(rate, 80), 450), min(max(pitch, low), high), min(max(spread, low), high)
    return replace(voice, rate=round(rate), pitch=round(pitch), range=round(spread))


def sentences(split: str, seed: int, words: range = SENTENCE) -> Iterator[str]:
    """Different sentences of a split of MiniSQA, without end; those about people only, which no other split has."""
    seen, index = set(load_language(LANGUAGE).fillers), 0
    while True:
        for sentence in generate_passage(LANGUAGE, split, index, seed).sentences:
            if len(sentence.split()) in words and sentence not in seen:
                seen.add(sentence)
                yield sentence
        index += 1


# What is said in MiniSUPERB: the words of Speech Commands, commands after Fluent Speech Commands, and speaking styles.
#
# The keywords and the unknown words are those of Speech Commands v1 (arXiv 1804.03209); actions, objects and locations, with
# their 31
# combinations, are those of Fluent Speech Commands (arXiv 1904.03670, table 1), the phrases are our own.

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


_NUMBERS = "two three four five six seven eight nine ten"
_DAYS = "today/tonight/tomorrow/this weekend/next week/on monday/on tuesday/on wednesday/on friday/on saturday/on sunday"
_HOURS = "one/two/three/four/five/six/seven/eight/nine/ten/eleven/half past six/half past seven/a quarter to nine"

# slot -> patterns; a pattern is places that one word or phrase each fills: "silver golden | river tiger" gives "silver tiger"
_VALUES = {
    "artist": (
        "bessie clive doris elton freddie gwen hector iris jerome kitty lionel mabel nina otis | "
        "ashford brandt carrow delgado fontaine harlow jansen kowalski moreau novak pereira stone tanaka vance",
        "the | silver crimson electric midnight wandering velvet | tigers rivers pilots shadows sisters wolves",
    ),
    "track": (
        "dancing running waiting sleeping dreaming | in the rain/by the sea/at midnight/in the dark/under the moon/with you",
        "blue broken golden lonely summer winter | hearts rain sky highway morning stars",
    ),
    "playlist": (
        "morning evening sunday road party rainy study dinner holiday | coffee classics favourites energy moods hits dreams",
    ),
    "object_name": (
        "the | last silent hidden golden broken frozen secret | garden letter island kingdom witness lighthouse promise",
        "shadows tales songs secrets children | of the north/of the desert/of the harbour/of the forest/of the empire/of the hills",
    ),
    "restaurant_name": (
        "the | hungry golden laughing little rusty happy | lion spoon goose kettle pepper fisherman",
        "casa villa chez cafe | rosa marco lucia pierre bella sophie",
    ),
    "city": (
        "amsterdam/athens/atlanta/auckland/austin/berlin/boston/brisbane/bristol/brussels/budapest/cairo/calgary/"
        "cape town/chicago/dallas/denver/dublin/edinburgh/florence/geneva/glasgow/hamburg/helsinki/houston/istanbul/"
        "jakarta/lagos/lima/lisbon/liverpool/london/madrid/manila/melbourne/mexico city/miami/milan/montreal/moscow/"
        "mumbai/munich/nairobi/naples/new orleans/new york/oslo/ottawa/oxford/paris/perth/porto/prague/rome/rotterdam/"
        "salt lake city/san diego/santiago/seattle/seoul/singapore/stockholm/sydney/tokyo/toronto/vancouver/venice/vienna/"
        "warsaw/zurich",
    ),
    "time_range": (_DAYS,),
    "time": (f"{_HOURS}/noon/midnight", f"{_HOURS} | in the morning/in the evening/in the afternoon"),
    "condition": ("rain snow fog wind sunshine storms hail frost",),
    "cuisine": ("italian indian chinese french greek japanese mexican spanish thai turkish vegan lebanese",),
    "party_size_number": (_NUMBERS,),
    "rating_value": ("zero one two three four five",),
    "service": ("spotify/deezer/the radio/the cloud/my phone/youtube",),
    "music_item": ("song album track tune",),
    "genre": ("jazz/rock/country/classical/folk/soul/punk/techno/blues/hip hop",),
    "object_type": ("book novel saga essay textbook chronicle",),
    "movie_type": ("movies/films/animated movies/cartoons/documentaries",),
    "location_name": ("the odeon/the grand cinema/the star theatre/the plaza/the royal picture house",),
}
OPEN = ("artist", "track", "playlist", "object_name", "restaurant_name", "city")

INTENTS_OF_COMMANDS = {
    "play_music": (
        "play {track} by {artist}/play something by {artist}/i want to hear {track}/play {genre} music on {service}/"
        "put on the {music_item} {track} by {artist}/play {artist} on {service}/start my {playlist} playlist"
    ),
    "add_to_playlist": (
        "add {track} to my {playlist} playlist/put {artist} on the {playlist} list/add this {music_item} to {playlist}/"
        "add the {music_item} {track} by {artist} to my {playlist} playlist/include {track} in the playlist {playlist}"
    ),
    "get_weather": (
        "what is the weather in {city} {time_range}/will there be {condition} in {city} {time_range}/how is the weather in {city}/"
        "tell me the forecast for {city} {time_range}/is there any {condition} {time_range} in {city}/weather for {city} at {time}"
    ),
    "book_restaurant": (
        "book a table for {party_size_number} at {restaurant_name}/reserve something {cuisine} in {city} for {party_size_number}/"
        "find me a place with {cuisine} food in {city}/i need a table at {restaurant_name} in {city} {time_range}/"
        "book {restaurant_name} {time_range} at {time} for {party_size_number} people"
    ),
    "rate_book": (
        "rate {object_name} {rating_value} out of six/give {object_name} {rating_value} stars/"
        "i give the {object_type} {object_name} {rating_value} points/give this {object_type} {rating_value} stars/"
        "the {object_type} {object_name} gets {rating_value} out of six"
    ),
    "search_creative_work": (
        "find the {object_type} {object_name}/where can i get the {object_type} {object_name}/show me {object_name}/"
        "look for the {object_type} called {object_name}/find the {music_item} {track}"
    ),
    "search_screening_event": (
        "when is {object_name} playing at {location_name}/which {movie_type} are on at {location_name} {time_range}/"
        "is {object_name} on {time_range}/find {movie_type} at {location_name}/show the times for {object_name} in {city}"
    ),
    "set_alarm": (
        "set an alarm for {time}/wake me up at {time} {time_range}/remind me {time_range} at {time}/cancel the alarm at {time}"
    ),
}
_PLACE = re.compile(r"\{(\w+)\}")


def commands(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The intents in turn, each phrase as often, by anyone of the split."""
    while True:
        for phrases in INTENTS_OF_COMMANDS.values():
            text, slots = fill(rng, rng.choice(phrases.split("/")), split)
            voice = varied(rng, anyone(rng, split))
            yield Draw("", text, voice, tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, 0), slots=slots)


def fill(rng: Random, phrase: str, split: str) -> tuple[str, tuple[Slot, ...]]:
    """What is said, and the slots in their order."""
    slots = tuple(Slot(name, value(rng, name, split)) for name in _PLACE.findall(phrase))
    values = iter(slots)
    return _PLACE.sub(lambda _: next(values).value, phrase), slots


def value(rng: Random, slot: str, split: str) -> str:
    """One that the split may have: of an open slot in training its own, in dev and test those of training as well."""
    while True:
        pattern = rng.choice(_VALUES[slot])
        found = " ".join(rng.choice(_choices(place)) for place in pattern.split(" | "))
        if slot not in OPEN or split_of(found) in ("train", split):
            return found


def _choices(place: str) -> list[str]:
    """What may stand in a place: phrases between slashes, or words."""
    return place.split("/") if "/" in place else place.split()
