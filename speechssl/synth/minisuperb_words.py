"""What is spoken in MiniSUPERB: keywords, commands, commands with slots, speaking styles, and the names of phones.

The keywords and the unknown words are those of Speech Commands v1 (arXiv 1804.03209). Actions, objects and locations, with their
31 combinations, are those of Fluent Speech Commands (arXiv 1904.03670, table 1), the phrases are our own. Commands with slots are
after SNIPS (arXiv 1805.10190): its intents and names of slots, our own phrases and values. The values of the open slots (OPEN)
belong to splits, by the hash that MiniSQA uses: training has about 70 % of them; dev and test have those and new ones (10 % and
20 % of all). The values of the other slots, and the phrases, are the same in all splits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from speechssl.data.superb import Slot
from speechssl.synth.minisqa import split_of
from speechssl.synth.synthesisers import Spoken

# The phones of PR: those that espeak-ng spoke, named as in the CMU dictionary (39, as LibriSpeech's are without stress).
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
    """The phones of English speech, "HH AH L OW". Raises KeyError for a phone that no English word has."""
    found: list[str] = []
    for phone in spoken.all_phones if spoken else ():
        names = NAMES[phone]
        linking = names == ("R",) and found[-1:] in (["R"], ["ER"])
        found += () if linking else names
    return " ".join(found)


KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN_WORDS = (
    *("bed", "bird", "cat", "dog", "happy", "house", "marvin", "sheila", "tree", "wow"),
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
)
UNKNOWN, SILENCE = "unknown", "silence"


@dataclass(frozen=True)
class Intent:
    """What a command asks for, and its phrases. The last of them does not occur in the training data."""

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


INTENTS = (
    *(
        Intent(*k, where, tuple(t.replace("{}", words).split("; ")))
        for k, t in _IN_ROOMS.items()
        for where, words in _LOCATIONS.items()
    ),
    *(Intent(*wish, "none", tuple(text.split("; "))) for wish, text in _ANYWHERE.items()),
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


def fill(rng: Random, phrase: str, split: str) -> tuple[str, tuple[Slot, ...]]:
    """The words of a phrase, and its slots in their order."""
    slots = tuple(Slot(name, value(rng, name, split)) for name in _PLACE.findall(phrase))
    values = iter(slots)
    return _PLACE.sub(lambda _: next(values).value, phrase), slots


def value(rng: Random, slot: str, split: str) -> str:
    """One that the split may have: of an open slot in training its own, in dev and test those of training as well."""
    while True:
        pattern = rng.choice(_VALUES[slot])
        places = [place.split("/") if "/" in place else place.split() for place in pattern.split(" | ")]  # of phrases, or of words
        found = " ".join(map(rng.choice, places))
        if slot not in OPEN or split_of(found) in ("train", split):
            return found
