"""Run recognisers of Hugging Face, CTC models and Whisper, with word times.

Word times come from the frames of the likeliest path of a CTC model on raw samples (wav2vec 2.0,
HuBERT, WavLM and their kin), and from Whisper's cross-attention (`return_token_timestamps`). Texts
come as the model spells them, with its case and punctuation.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoModelForCTC,
    AutoModelForSpeechSeq2Seq,
    AutoTokenizer,
    pipeline,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.data import TimedWord, Transcript, show_pieces, split_at_pauses
from speechssl.cascade.model import find_greedy_spans, join_symbols
from speechssl.checkpoints import fetch_checkpoint, hash_checkpoint
from speechssl.dual.system import choose_device
from speechssl.encoders.checkpoints import MASK
from speechssl.errors import InputError, cut_error
from speechssl.text import choose_joiner, find_language
from speechssl.textlm.encoders import check_missing
from speechssl.timing import FrameGrid

CTC_LONGEST = 20.0  # seconds at once: attention costs the square of the length
WHISPER_LONGEST = 30.0  # seconds: the window Whisper was trained on (arXiv 2212.04356, section 2.2)
# A window whose text fails one of the first two thresholds is decoded again at the next temperature
# (arXiv 2212.04356, section 4.5). The values are those of transcribe() in openai/whisper, except
# for two: in transformers the ratio is of tokens, not of text (its documentation gives 1.35), and
# no window is conditioned on the text before it.
FALLBACK: dict[str, Any] = {
    "temperature": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "compression_ratio_threshold": 1.35,
    "logprob_threshold": -1.0,
    "no_speech_threshold": 0.6,
    "condition_on_prev_tokens": False,
}
# transformers 5.23 warns of a deprecated call that its own WhisperGenerationMixin.generate makes
logging.getLogger("transformers.generation.utils").addFilter(
    lambda record: "begin_suppress_tokens" not in record.getMessage()
)
# matches <s> and [UNK]: some tokenisers do not say that these are special
_SPECIAL = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")


class HuggingFaceRecogniser:
    """The recogniser runs a CTC or Whisper checkpoint, on a GPU where there is one. Its name is
    the last part of the checkpoint's.

    source: a folder, or a name on the hub. language: the tag of the spoken language; None stands
    for a language that is written with spaces, which Whisper guesses for every piece. Raises
    InputError where the checkpoint cannot be loaded whole or is of a kind without word times.
    """

    def __init__(self, source: Path | str, language: str | None = None) -> None:
        self.name = Path(source).name
        self.separator = choose_joiner(language or "en")
        device = choose_device()
        folder = fetch_checkpoint(source, "recogniser")
        config = _load(AutoConfig, folder)
        kind = (config.architectures or [config.model_type])[0]
        card = {"asr": str(source), "asr_weights": hash_checkpoint(str(folder))}
        self.engine: CtcCheckpoint | WhisperCheckpoint
        if config.model_type == "whisper":
            code = language and find_language(language)
            self.engine = WhisperCheckpoint(folder, code, device, self.separator)
            card["decoding"] = "fallback"
        elif _has_frame_grid(config, kind):
            self.engine = CtcCheckpoint(folder, config, self.separator, device)
        else:
            raise InputError(
                f"{folder} is a {kind}, which has no word times; give a CTC model of the wav2vec "
                "2.0 family (...ForCTC) without adapter, or Whisper"
            )
        self.card: Mapping[str, Any] = card

    def transcribe(self, samples: np.ndarray) -> Transcript:
        """Recognise a recording. samples: (N,) float32 at 16 kHz. Long audio is decoded in pieces
        cut at pauses.

        Whisper gives no confidence (nan). Words that it puts behind the end of a piece get the time
        of that end.
        """
        words: list[TimedWord] = []
        pieces = split_at_pauses(samples, self.engine.longest)
        for first, last in show_pieces(pieces, "recognising"):
            offset, limit = first / SAMPLE_RATE, last / SAMPLE_RATE
            for word in self.engine.decode(samples[first:last]):
                start, end = min(offset + word.start, limit), min(offset + word.end, limit)
                words.append(replace(word, start=start, end=end))
        return Transcript(tuple(words), self.separator)


class CtcCheckpoint:
    """This engine runs a CTC checkpoint on raw samples.

    symbols: the text of each of the V outputs, "" for those that write nothing; separator: the
    symbol between words, "" for none; blank: number of the blank.
    """

    longest = CTC_LONGEST

    def __init__(self, folder: Path, config: Any, separator: str, device: torch.device) -> None:
        tokenizer = _load(AutoTokenizer, folder)
        self._extractor = _load(AutoFeatureExtractor, folder)
        self.grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
        self.symbols, separator_ids = _read_output_symbols(
            tokenizer, config.vocab_size, _read_delimiter(folder)
        )
        if separator and not separator_ids:
            raise InputError(
                f"the vocabulary of {folder} has no symbol between words; give a CTC model with a "
                "Wav2Vec2CTCTokenizer, whose words are apart by '|', a space or the "
                "`word_delimiter_token` of its tokenizer_config.json"
            )
        if not separator:
            for i in separator_ids:
                self.symbols[i] = ""
        self.separator = self.symbols[separator_ids[0]] if separator else ""
        # padding is the blank of these models (transformers, Wav2Vec2ForCTC.forward)
        self.blank = config.pad_token_id
        self.model = _load_model(AutoModelForCTC, folder, device)

    @torch.inference_mode()
    def compute_log_probs(self, samples: np.ndarray) -> torch.Tensor:
        """Return log-probabilities (T, V) on the CPU, T by the grid. samples: (N,) of at most
        `longest` seconds."""
        if not self.grid.count_frames(len(samples)):
            return torch.zeros(0, len(self.symbols))
        inputs = self._extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt")
        logits = self.model(inputs.input_values.to(self.model.device)).logits[0]
        return logits.float().log_softmax(-1).cpu()

    def decode(self, samples: np.ndarray) -> list[TimedWord]:
        """Decode at most `longest` seconds greedily. samples: (N,)."""
        spans = find_greedy_spans(self.compute_log_probs(samples), self.blank)
        spans = [s for s in spans if self.symbols[s.token]]
        return join_symbols(spans, self.symbols, self.separator, self.grid)


class WhisperCheckpoint:
    """This engine runs a Whisper checkpoint with alignment heads. separator: " ", or "" for a
    language written without spaces.

    Raises InputError for a language that it was not trained on.
    """

    longest = WHISPER_LONGEST

    def __init__(
        self, folder: Path, language: str | None, device: torch.device, separator: str
    ) -> None:
        self.separator = separator
        self.model = _load_model(AutoModelForSpeechSeq2Seq, folder, device)
        settings = self.model.generation_config
        if not getattr(settings, "alignment_heads", None):
            raise InputError(
                f"{folder} has no word times: its generation_config.json lacks alignment_heads; "
                "copy them from the Whisper checkpoint that it was made from"
            )
        multilingual = bool(getattr(settings, "is_multilingual", False))
        languages = settings.lang_to_id if multilingual else {"<|en|>"}
        if language and f"<|{language}|>" not in languages:
            raise InputError(
                f"{folder} was not trained on the language {language!r}; give a "
                "multilingual Whisper"
            )
        self.tokenizer = _load(AutoTokenizer, folder)
        self.extractor = _load(AutoFeatureExtractor, folder)
        self._pipeline: Any = pipeline(
            "automatic-speech-recognition",
            model=self.model,
            device=self.model.device,
            tokenizer=self.tokenizer,
            feature_extractor=self.extractor,
        )
        self._options: dict[str, Any] = {}
        if multilingual:  # without a task, transformers 5.23 repeats words endlessly
            self._options["task"] = "transcribe"
            if language:
                self._options["language"] = language

    def extract(self, samples: np.ndarray) -> Any:
        """Return the inputs of the model for samples (N,)."""
        options = {"return_attention_mask": True, "return_tensors": "pt"}
        inputs = self.extractor(samples, sampling_rate=SAMPLE_RATE, **options)
        return inputs.to(self.model.device)

    def decode(self, samples: np.ndarray) -> list[TimedWord]:
        """Decode at most `longest` seconds with `FALLBACK`. samples: (N,); a hash of them seeds the
        sampling."""
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(zlib.crc32(samples.tobytes()))
            generated = self.model.generate(
                **self.extract(samples),
                num_beams=1,
                return_timestamps=True,
                return_token_timestamps=True,
                return_segments=True,
                **FALLBACK,
                **self._options,
            )
        segments = generated["segments"][0]
        if not segments:  # no speech was found, and the pipeline fails on nothing
            return []
        times = torch.cat([segment["token_timestamps"] for segment in segments])[None]
        outputs = [{"tokens": generated["sequences"].cpu(), "token_timestamps": times.cpu()}]
        chunks = self._pipeline.postprocess(outputs, return_timestamps="word")["chunks"]
        words: list[TimedWord] = []
        for chunk in chunks:
            text = chunk["text"]
            start, end = map(float, chunk["timestamp"])
            if not text.strip():
                continue
            # transformers cuts "3,000" before its comma
            if words and self.separator and not text[0].isspace():
                words[-1] = replace(words[-1], text=words[-1].text + text.strip(), end=end)
            else:
                words.append(TimedWord(text.strip(), start, end, float("nan")))
        return words


def _has_frame_grid(config: Any, kind: str) -> bool:
    """Return whether a checkpoint is a CTC model whose frames come from convolutions alone; an
    adapter behind them changes the frame rate. kind: its architecture."""
    is_convolutional_ctc = kind.endswith("ForCTC") and hasattr(config, "conv_kernel")
    return is_convolutional_ctc and not getattr(config, "add_adapter", False)


def _read_delimiter(folder: Path) -> str:
    """Read the symbol between words of a tokeniser; transformers 5.23 loads every one as "|"."""
    delimiter = get_tokenizer_config(str(folder)).get("word_delimiter_token") or "|"
    return str(delimiter["content"] if isinstance(delimiter, Mapping) else delimiter)


def _read_output_symbols(tokenizer: Any, size: int, delimiter: str) -> tuple[list[str], list[int]]:
    """Read the text of each of `size` outputs, "" for those that write nothing, and the numbers of
    those that stand between words, which all get the text of the first of them."""
    tokens = [tokenizer.convert_ids_to_tokens(i) or "" for i in range(size)]
    silent_ids = {*tokenizer.all_special_ids, *range(len(tokenizer), size)}
    symbols = []
    for i, token in enumerate(tokens):
        is_silent = i in silent_ids or _SPECIAL.fullmatch(token)
        symbols.append("" if is_silent else token)
    # a space stands between words when it is decoded
    separator_ids = [i for i, token in enumerate(tokens) if token == delimiter or token.isspace()]
    for i in separator_ids:
        symbols[i] = tokens[separator_ids[0]]
    if getattr(tokenizer, "do_lower_case", False):
        symbols = [symbol.lower() for symbol in symbols]
    return symbols, separator_ids


def _load(loader: Any, folder: Path) -> Any:
    """Load the config, tokeniser or feature extractor of a checkpoint."""
    with _refuse_unloadable(folder):
        return loader.from_pretrained(str(folder), trust_remote_code=False)


def _load_model(loader: Any, folder: Path, device: torch.device) -> Any:
    """Load the model of a checkpoint for inference."""
    with _refuse_unloadable(folder):
        model, info = loader.from_pretrained(
            str(folder), trust_remote_code=False, output_loading_info=True
        )
        missing = [name for name in info["missing_keys"] if not name.endswith(MASK)]
        check_missing(missing)
    return model.eval().to(device)


@contextmanager
def _refuse_unloadable(folder: Path) -> Iterator[None]:
    """Turn any error of loading a checkpoint into an InputError."""
    try:
        yield
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(
            f"cannot load {folder} ({cut_error(error).rstrip('.')}); give a folder with the whole "
            "fine-tuned checkpoint (config.json, model.safetensors, preprocessor_config.json, "
            "tokenizer files), or a hub id (OWNER/NAME)"
        ) from error
