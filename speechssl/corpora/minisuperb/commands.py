"""Commands with slots, after SNIPS (arXiv 1805.10190): its intents and names of slots, our own phrases and values.

The values of the open slots (OPEN) belong to splits, by the hash that MiniSQA uses: training has about 70 % of them; dev and test
have those and new ones (10 % and 20 % of all). The values of the other slots, and the phrases, are the same in all splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from speechssl.corpora.minisqa.text import split_of
from speechssl.corpora.minisuperb.choices import anyone, varied
from speechssl.corpora.minisuperb.draws import Draw
from speechssl.corpora.utterances import Slot

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

INTENTS = {
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
        for phrases in INTENTS.values():
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
