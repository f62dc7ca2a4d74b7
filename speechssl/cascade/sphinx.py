"""PocketSphinx in a process of its own, which `engines.PocketSphinxRecogniser` starts. It imports
nothing of this package.

    python sphinx.py OPTIONS       OPTIONS: of the decoder, in JSON

Prints a line {"frate": frames a second}, or {"error": why the options do not do}. Then it reads
utterances, each a line with its number of bytes and that many bytes of int16 samples, and prints a
line for each, a list of words and fillers:
[[word, first frame, last frame, probability], ...].
"""

import json
import signal
import sys
import warnings
from typing import Any

import pocketsphinx


def decode(decoder: Any, samples: bytes) -> list[tuple[str, int, int, float]]:
    """The segments of an utterance. samples: int16."""
    # it is called unnecessary, but without it the noise tracker remembers the last utterance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        decoder.start_stream()
    decoder.start_utt()
    decoder.process_raw(samples, full_utt=True)
    decoder.end_utt()
    segments = decoder.seg() if decoder.hyp() is not None else ()
    return [
        (segment.word, segment.start_frame, segment.end_frame, float(segment.prob))
        for segment in segments
    ]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever has started it says when it ends
    try:
        decoder = pocketsphinx.Decoder(**json.loads(sys.argv[1]))
    except (RuntimeError, ValueError, KeyError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"frate": decoder.config["frate"]}), flush=True)
    while line := sys.stdin.buffer.readline():
        print(json.dumps(decode(decoder, sys.stdin.buffer.read(int(line)))), flush=True)


if __name__ == "__main__":
    main()
