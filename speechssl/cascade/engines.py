"""This module runs recognisers of Hugging Face, CTC models and Whisper, with word times.

Word times come from the frames of the likeliest path of a CTC model on raw samples (wav2vec 2.0,
HuBERT, WavLM and their kin), and from Whisper's cross-attention (`return_token_timestamps`). Texts
come as the model spells them, with its case and punctuation.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoModelForCTC,
    AutoModelForSpeechSeq2Seq,
    AutoTokenizer,
    pipeline,
)

from speechssl.artifacts import hash_files
from speechssl.cascade.data import TimedWord, Transcript, check_samples, transcribe_pieces
from speechssl.cascade.model import greedy_spans, timed_words
from speechssl.checkpoints import WEIGHTS, checkpoint_folder
from speechssl.dual.system import choose_device
from speechssl.encoders.hubert import for_inference
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

SAMPLE_RATE = 16_000  # Hz, of the checkpoints
CTC_LONGEST = 20.0  # seconds at once: attention costs the square of the length
WHISPER_LONGEST = 30.0  # seconds: the window Whisper was trained on (arXiv 2212.04356, section 2.2)
# There is no speech where Whisper says so with at least this probability and gives its own words at
# most this mean log-probability: the rule of transcribe() in openai/whisper. The first alone would
# refuse people: base gives 2 of 102 interviews (VoxCeleb) 0.6 and more, one of them plain English,
# and 10 of 51 single digits (FSDD). A throbbing tone, music and claps have -1.1 and less.
NO_SPEECH, UNLIKELY = 0.6, -1.0
# Words that fail these thresholds are drawn again at the next temperature (arXiv 2212.04356,
# section 4.5). The values are those of transcribe() in openai/whisper, but for the ratio, which in
# transformers is that of tokens, not of text; its documentation gives 1.35.
FALLBACK: dict[str, Any] = {
    "temperature": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "compression_ratio_threshold": 1.35,
    "logprob_threshold": UNLIKELY,
    "no_speech_threshold": NO_SPEECH,
    "condition_on_prev_tokens": False,
}
# A call that is deprecated in transformers 5.23 and that its own WhisperGenerationMixin.generate
# makes, whatever it is given
logging.getLogger("transformers.generation.utils").addFilter(
    lambda record: (
        not re.match(
            r"Passing `generation_config` "
            r".*begin_suppress_tokens",
            record.getMessage(),
        )
    )
)
# <s>, [UNK]: some tokenisers do not say that these are no letters
_SPECIAL = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
# a weight for training only, which some published checkpoints leave out
_NOT_NEEDED = "masked_spec_embed"


class HuggingFaceRecogniser:
    """This runs a CTC or Whisper checkpoint, called by the last part of its name; on a GPU where
    there is one.

    source: a folder, or a name on the hub. separator: " ", or "" for a language written without
    spaces. language: for Whisper, e.g. "en", "zh"; None lets it guess, piece by piece. Raises
    InputError where the checkpoint cannot be loaded whole or is of a kind without word times.
    """

    def __init__(
        self, source: Path | str, separator: str = " ", language: str | None = None
    ) -> None:
        self.name, self.separator, device, typed = (
            Path(source).name,
            separator,
            str(choose_device("auto")),
            str(source),
        )
        source = checkpoint_folder(source, "recogniser")
        config = _load(AutoConfig, source, "configuration")
        self.engine: CtcCheckpoint | WhisperCheckpoint
        if config.model_type == "whisper":
            self.engine = WhisperCheckpoint(str(source), language, device, separator)
        elif (config.architectures or [""])[0].endswith("ForCTC"):
            self.engine = CtcCheckpoint(str(source), config, separator, device)
        else:
            kind = (config.architectures or [config.model_type])[0]
            raise InputError(
                f"{source} is a {kind}, which has no word times; give a CTC model "
                "(...ForCTC) or Whisper"
            )
        weights = hash_files(
            next(files for pattern in WEIGHTS if (files := sorted(source.glob(pattern))))
        )
        self.card: Mapping[str, Any] = {"asr": typed, "asr_weights": weights}
        if isinstance(self.engine, WhisperCheckpoint):
            self.card = {**self.card, "decoding": "fallback"}

    def transcribe(self, samples: np.ndarray) -> Transcript:
        """Recognise a recording. samples: (N,) float32 at 16 kHz. Long audio is decoded in pieces
        cut at pauses.

        Whisper gives no confidence (nan), and words it imagines after the end of a piece are put at
        that end.
        """
        engine = self.engine
        words = transcribe_pieces(
            check_samples(samples), engine.longest, SAMPLE_RATE, engine.decode
        )
        return Transcript(words, self.separator)


class CtcCheckpoint:
    """This is a CTC model on raw samples. symbols: the text of every output, "" for those that
    write nothing; blank: which it is."""

    longest = CTC_LONGEST

    def __init__(self, source: str, config: Any, separator: str, device: str) -> None:
        tokenizer = _load(AutoTokenizer, source, "tokenizer")
        self._source, self._extractor = source, _extractor(source)
        try:
            self.grid = FrameGrid.of_convolutions(
                SAMPLE_RATE, config.conv_kernel, config.conv_stride
            )
        except AttributeError as error:
            raise InputError(
                f"{source} ({config.model_type}) does not state its convolutions, which word "
                "times need; "
                "give a CTC model of the wav2vec 2.0 family"
            ) from error
        written = [tokenizer.convert_ids_to_tokens(i) or "" for i in range(config.vocab_size)]
        delimiter = getattr(tokenizer, "word_delimiter_token", None)
        if delimiter is None:
            raise InputError(
                f"{source} has no symbol between words; give a CTC model with a "
                "Wav2Vec2CTCTokenizer"
            )
        # transformers 5.23 loads every delimiter as "|"; one that is a space still stands between
        # words when it is decoded
        between = [i for i, token in enumerate(written) if token == delimiter or token.isspace()]
        if separator and not between:
            raise InputError(
                f"the vocabulary of {source} lacks {delimiter!r}, which transformers has between "
                "its words; "
                "give a CTC model whose words are apart by '|' or a space"
            )
        self.separator = written[between[0]] if separator else ""
        silent = {*tokenizer.all_special_ids, *range(len(tokenizer), config.vocab_size)}
        self.symbols = [
            "" if i in silent or _SPECIAL.fullmatch(token) else token
            for i, token in enumerate(written)
        ]
        for i in between:
            self.symbols[i] = self.separator
        if getattr(tokenizer, "do_lower_case", False):
            self.symbols = [symbol.lower() for symbol in self.symbols]
        # by which these models were trained (transformers, Wav2Vec2ForCTC.forward)
        self.blank = config.pad_token_id
        self.model = _model(AutoModelForCTC, source, device)

    @torch.inference_mode()
    def log_probs(self, samples: np.ndarray) -> torch.Tensor:
        """Return log-probabilities (T, V) on the CPU, T by the grid. samples: (N,) of at most
        `longest` seconds."""
        if not self.grid.frames(len(samples)):
            return torch.zeros(0, len(self.symbols))
        inputs = self._extractor(
            samples, sampling_rate=SAMPLE_RATE, return_tensors="pt"
        ).input_values
        logits = self.model(inputs.to(self.model.device)).logits[0]
        if len(logits) != self.grid.frames(len(samples)):
            raise InputError(
                f"{self._source} changes its frame rate after the convolutions; "
                "give a CTC model without adapter"
            )
        return logits.float().log_softmax(-1).cpu()

    def decode(self, samples: np.ndarray) -> list[TimedWord]:
        spans = greedy_spans(self.log_probs(samples), self.blank)
        return timed_words(
            [s for s in spans if self.symbols[s.token]], self.symbols, self.separator, self.grid
        )


class WhisperCheckpoint:
    """This is a Whisper with alignment heads. separator: " ", or "" for a language written without
    spaces.

    Raises InputError for a language that it was not trained on.
    """

    longest = WHISPER_LONGEST

    def __init__(
        self, source: str, language: str | None, device: str, separator: str = " "
    ) -> None:
        self.separator = separator
        model = _model(AutoModelForSpeechSeq2Seq, source, device)
        if not getattr(model.generation_config, "alignment_heads", None):
            raise InputError(
                f"{source} has no word times: its generation_config.json lacks alignment_heads; "
                "copy them from the Whisper checkpoint that it was made from"
            )
        languages = (
            model.generation_config.lang_to_id
            if model.generation_config.is_multilingual
            else {"<|en|>": None}
        )
        if language and f"<|{language}|>" not in languages:
            raise InputError(
                f"{source} was not trained on the language {language!r}; give a "
                "multilingual Whisper"
            )
        self.model, self.tokenizer, self.extractor = (
            model,
            _load(AutoTokenizer, source, "tokenizer"),
            _extractor(source),
        )
        parts = {"tokenizer": self.tokenizer, "feature_extractor": self.extractor}
        self._pipeline: Any = pipeline(
            "automatic-speech-recognition", model=model, device=model.device, **parts
        )
        self._options: dict[str, Any] = {}
        self.multilingual = bool(getattr(model.generation_config, "is_multilingual", False))
        if self.multilingual:  # without a task, transformers repeats words endlessly
            self._options = {"task": "transcribe"} | ({"language": language} if language else {})

    def decode(self, samples: np.ndarray) -> list[TimedWord]:
        """Decode at most `longest` seconds with `FALLBACK`. samples: (N,), which seed what is
        drawn."""
        options = {"return_attention_mask": True, "return_tensors": "pt"}
        features = self.extractor(samples, sampling_rate=SAMPLE_RATE, **options)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(zlib.crc32(samples.tobytes()))
            generated = self.model.generate(
                **features.to(self.model.device),
                num_beams=1,
                return_timestamps=True,
                return_token_timestamps=True,
                return_segments=True,
                **FALLBACK,
                **self._options,
            )
        segments = generated["segments"][0]
        if not segments:  # no speech, at which a call of the pipeline fails
            return []
        times = torch.cat([segment["token_timestamps"] for segment in segments])[None]
        outputs = [{"tokens": generated["sequences"].cpu(), "token_timestamps": times.cpu()}]
        chunks = self._pipeline.postprocess(outputs, return_timestamps="word")["chunks"]
        words: list[TimedWord] = []
        for chunk in chunks:
            (start, end), text = map(float, chunk["timestamp"]), chunk["text"]
            if not text.strip():
                continue
            # transformers cuts "3,000" before its comma
            if words and self.separator and not text[0].isspace():
                words[-1] = replace(words[-1], text=words[-1].text + text.strip(), end=end)
            else:
                words.append(TimedWord(text.strip(), start, end, float("nan")))
        return words


def _load(loader: Any, source: Path | str, what: str, **options: Any) -> Any:
    try:
        return loader.from_pretrained(str(source), trust_remote_code=False, **options)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        ImportError,
        SafetensorError,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(
            f"cannot load the {what} of {source} ({reason}); give the path of a folder with the "
            "whole checkpoint "
            "(config.json, model.safetensors, preprocessor_config.json, tokenizer files), or a "
            "hub id (OWNER/NAME)"
        ) from error


def _model(loader: Any, source: str, device: str) -> Any:
    """Load a model for inference. A weight that the checkpoint lacks would be random, so it is
    refused."""
    model, info = _load(loader, source, "weights", output_loading_info=True)
    if lacking := sorted(k for k in info["missing_keys"] if not k.endswith(_NOT_NEEDED)):
        raise InputError(
            f"{source} lacks the weight {lacking[0]} (of {len(lacking)} missing); "
            "give a fine-tuned checkpoint"
        )
    for_inference(model)
    return model.eval().to(device)


def _extractor(source: str) -> Any:
    extractor = _load(AutoFeatureExtractor, source, "feature extractor")
    if extractor.sampling_rate != SAMPLE_RATE:
        raise InputError(
            f"{source} expects audio at {extractor.sampling_rate} Hz; give a model "
            f"for {SAMPLE_RATE} Hz"
        )
    return extractor
