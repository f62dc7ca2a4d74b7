"""Training of the cascade: a CTC head on a frozen encoder, from features that are computed once,
and text QA on words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from speechssl.audio import read_audio
from speechssl.cascade.data import Record, text_examples
from speechssl.cascade.decode import (
    NGRAM_FILE,
    NGRAM_FOLDER,
    NGRAM_THRESHOLD,
    BeamDecoder,
    BeamOptions,
    load_ngrams,
    save_ngrams,
    train_ngram,
)
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape, greedy_decode
from speechssl.cascade.options import CtcOptions, TrainNgram
from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import given_words, load_text
from speechssl.data.records import (
    Corpus,
    Span,
    corpus_card,
    data_facts,
    data_hash,
    first_passages,
    load_corpus,
)
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel, load_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader
from speechssl.dual.train import (
    answer_in_batches,
    drawn,
    evaluated_part,
    fit_spans,
    held_out,
    held_out_hash,
    layout_of,
    mean_f1,
    start_of,
    weights_of,
)
from speechssl.encoders.load import SpeechEncoder
from speechssl.encoders.store import FeatureStore, store_features
from speechssl.errors import InputError, report_set_aside
from speechssl.io import hash_files, hash_json, stage
from speechssl.metrics import word_error_rate
from speechssl.options import settings
from speechssl.processes import is_main, main_first
from speechssl.text import error_metric, language_of
from speechssl.textlm import (
    SHIFT,
    TextCodec,
    character_encoder,
    licences,
    load_shift,
    load_text_encoder,
    load_tokenizer,
    special_tokens,
    subword_units,
)
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch, Evaluation, check_share, fit

MARGIN = 0.1  # seconds of context left around a crop


def train_ctc(
    corpus: Path, encoder: SpeechEncoder, out: Path, options: CtcOptions, split: str = "train"
) -> CtcRecogniser:
    """Train (once) on a split and save a recogniser in `out`; features are kept in `out`/features
    until it is done.

    Recordings that cannot be read are set aside and listed. Raises InputError where `out` was made
    from other inputs, or no word has times.
    """
    check_share(options.batch)
    inputs = {"data": data_hash(corpus, split), "encoder": encoder.hash} | held_out_hash(
        corpus, options.evaluation
    )
    with stage(out, inputs, settings(options), grows="options.training.steps") as step:
        if step.done:
            return CtcRecogniser.load(out, encoder)
        seed, layer = options.training.seed, options.layer
        torch.manual_seed(seed)
        data = first_passages(load_corpus(corpus, split), options.passages)
        if not data.passages:
            raise InputError(f"{corpus / split} has no passages; prepare the corpus with some")
        english = language_of(data.language) == "en"
        records = {r.id: r for r in data.records if r.words}
        if not records:
            lack = "no training recording has words with times, which a CTC head learns from"
            raise InputError(f"{lack}; `speechssl align` finds those of texts")
        features = layer_features(
            encoder, layer, data, records, out / "features", "features for CTC"
        )
        # what the vocabulary cannot spell
        left_out = re.compile("[^a-z']" if english else r"[\W_]")
        recordings = {}
        for name in features.places:
            spelt = (replace(w, text=left_out.sub("", w.text.lower())) for w in records[name].words)
            recordings[name] = tuple(w for w in spelt if w.text.strip("'"))
        words = (w.text for timed in recordings.values() for w in timed)
        vocabulary = CtcVocabulary.english() if english else CtcVocabulary.of_characters(words)
        states = 1 if layer is not None else encoder.layers + 1
        head = CtcHead(
            HeadShape(
                encoder.width, len(vocabulary), states, options.projection, options.lstm_width
            )
        )
        batches = CropBatches(
            features, recordings, vocabulary, encoder.grid, options.batch, options.longest, seed
        )
        recogniser = CtcRecogniser(encoder, head, vocabulary, "ctc", layer=layer)
        dev = held_out(corpus, options.evaluation)
        evaluation = (
            None
            if dev is None
            else recognition(recogniser, dev, options, out / "features" / dev.split)
        )
        result = fit(
            _HeadTraining(head.train()),
            batches,
            options.training,
            out / "checkpoints",
            evaluation=evaluation,
        )
        head.eval()
        with main_first():
            if is_main():
                card = corpus_card(corpus)
                facts = {"options": settings(options), "training": result, "corpus": card}
                recogniser.save(out, facts | licences(corpus) | data_facts(inputs))
                shutil.rmtree(out / "features")
        return recogniser


def layer_features(
    encoder: SpeechEncoder,
    layer: int | None,
    data: Corpus,
    records: Mapping[str, Record],
    folder: Path,
    what: str,
) -> FeatureStore:
    """Features of records of a corpus, (T, D) of one layer, or (T, L, D) of all, in float16."""

    def encode(record: Record) -> tuple[torch.Tensor, None]:
        samples = read_audio(data.path(record))
        rows = (
            encoder.hidden_states(samples).transpose(0, 1)
            if layer is None
            else encoder.features(samples, layer)
        )
        return rows.cpu().half(), None

    grid, width = encoder.grid, encoder.width * (encoder.layers + 1 if layer is None else 1)
    sizes = {
        name: 2 * width * grid.frames(grid.sample(record.seconds))
        for name, record in records.items()
    }
    made_from = {"encoder": encoder.hash, "layer": layer, "recordings": hash_json(list(records))}
    return store_features(folder, records, encode, sizes, made_from, what)


def recognition(
    recogniser: CtcRecogniser, data: Corpus, options: CtcOptions, folder: Path
) -> Evaluation:
    """WER (CER in Chinese) on held-out recordings. folder: of their features.

    What cannot be read is recognised as nothing, as in evaluation. Raises InputError where no
    recording has a text.
    """
    records = drawn([r for r in data.records if r.audio and r.text.strip()], options.evaluation)
    if not records:
        raise InputError(
            f"{data.root / data.split} has no recording with a text to evaluate on while "
            "training; name another split with "
            "--eval-split, or leave out --eval-every"
        )
    by_id, what = {r.id: r for r in records}, "features for evaluation"
    features = layer_features(recogniser.encoder, recogniser.layer, data, by_id, folder, what)

    def transcribed(record: Record) -> str:
        if record.id not in features:
            return ""
        rows = features[record.id].float()  # (T, D), or (T, L, D)
        states = rows.transpose(0, 1) if rows.ndim == 3 else rows[None]
        return recogniser.transcript(recogniser.log_probs_of(states)).text

    def score() -> float:
        return word_error_rate(
            [r.text for r in records], [transcribed(r) for r in records], data.language
        ).rate

    return Evaluation(
        options.evaluation, error_metric(data.language), len(records), score, lower=True
    )


def choose_ngram(o: TrainNgram, encoder: SpeechEncoder) -> dict[str, Any]:
    """Train (once) an n-gram on the texts of a split, and choose its weights on recordings of dev;
    returns its card.

    Raises InputError where no text can be spelt by the head, or dev has no recordings with texts.
    """
    recogniser, dev_corpus = CtcRecogniser.load(o.ctc, encoder), o.dev or o.corpus
    inputs = {
        "data": data_hash(o.corpus, o.split),
        "eval_data": data_hash(dev_corpus, o.dev_split),
        **recogniser.card,
    }
    choices: dict[str, Any] = {
        "order": o.order,
        "passages": o.passages,
        "dev_passages": o.dev_passages,
        "beam": o.beam,
    }
    choices |= {"lm_weights": list(o.lm_weights), "word_scores": list(o.word_scores)}
    with stage(o.ctc / NGRAM_FOLDER, inputs, choices) as step:
        if step.done:
            return step.card
        vocabulary, path = recogniser.vocabulary, o.ctc / NGRAM_FOLDER / NGRAM_FILE
        data = first_passages(load_corpus(o.corpus, o.split), o.passages)
        model = train_ngram((spell(record.text, vocabulary) for record in data.records), o.order)
        dev = first_passages(load_corpus(dev_corpus, o.dev_split), o.dev_passages)
        save_ngrams(model, path)
        model = load_ngrams(path)  # rounded, as it will decode
        texts, outputs = [], []
        for record in tqdm(
            [r for r in dev.records if r.audio and r.text.strip()],
            desc=("recognising dev"),
            unit="recording",
        ):
            texts.append(record.text)
            outputs.append(recogniser.log_probs(read_audio(dev.path(record))))
        if not texts:
            raise InputError(
                f"{dev_corpus / o.dev_split} has no recording with a text to choose "
                "weights on; name another --dev"
            )

        def error_rate(decoder: BeamDecoder | None) -> float:
            decode = decoder.decode if decoder else partial(greedy_decode, vocabulary=vocabulary)
            written = [decode(log_probs) for log_probs in outputs]
            return 100 * word_error_rate(texts, written, dev.language).rate

        tried = []
        for lm_weight in tqdm(o.lm_weights, desc="choosing weights", unit="weight"):
            for word_score in o.word_scores:
                options = BeamOptions(o.beam, lm_weight, word_score, NGRAM_THRESHOLD)
                tried.append((error_rate(BeamDecoder(model, vocabulary, options)), asdict(options)))
        wer, chosen = min(tried, key=lambda row: row[0])
        return step.finish(
            {
                "what": "n-gram",
                "corpus": corpus_card(o.corpus),
                "words": len(model.words),
                "ngrams": [len(ngrams.keys) for ngrams in model.ngrams],
                "decoding": chosen,
                "dev": {
                    "corpus": corpus_card(dev_corpus),
                    "split": o.dev_split,
                    "passages": o.dev_passages,
                },
                "recordings": len(texts),
                "wer": wer,
                "wer_greedy": error_rate(None),
                "weights": hash_files([path]),
                "tried": [
                    {"lm_weight": t["lm_weight"], "word_score": t["word_score"], "wer": rate}
                    for rate, t in tried
                ],
            }
            | inputs
            | licences(o.corpus)
        )


def spell(text: str, vocabulary: CtcVocabulary) -> str:
    """A text in the symbols of a head: small letters where it has no capitals, without what it
    cannot write.

    Words stay separated by spaces; where the head separates none, every character is a word.
    """
    known = set(vocabulary.symbols)
    if not any(symbol.lower() != symbol for symbol in known):
        text = text.lower()
    if not vocabulary.separator:
        return " ".join(character for character in text if character in known)
    words = (
        "".join(c for c in word if c in known - {vocabulary.separator}) for word in text.split()
    )
    return " ".join(word for word in words if word.strip("'"))


class _HeadTraining(nn.Module):
    """The head with what the trainer wants: tensors in, a dict with the loss out."""

    def __init__(self, head: CtcHead) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        features: torch.Tensor,
        lengths: torch.Tensor,
        targets: torch.Tensor,
        sizes: torch.Tensor,
    ) -> Batch:
        """features: (B, T, D), or (B, T, L, D) of L hidden states; lengths, sizes: (B,); targets:
        (B, symbols) padded."""
        features = features.transpose(1, 2) if features.ndim == 4 else features
        return self.head.loss(
            features.float(), lengths, [t[:n].tolist() for t, n in zip(targets, sizes, strict=True)]
        )


@dataclass(frozen=True)
class CropBatches:
    """Random crops of whole words, a function of (seed, step) only. A recording is drawn by its
    length."""

    features: FeatureStore  # (T, D) or (T, L, D) float16 of a recording
    recordings: Mapping[str, tuple[Span, ...]]  # their words
    vocabulary: CtcVocabulary
    grid: FrameGrid
    batch: int
    longest: float  # seconds
    seed: int

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        names, frames = (
            list(self.recordings),
            [self.features.places[name].length for name in self.recordings],
        )
        weights = np.array(frames, float)
        rows, targets = [], []
        for chosen in rng.choice(len(names), size=self.batch, p=weights / weights.sum()):
            words = self.recordings[names[chosen]]
            first = last = int(rng.integers(len(words)))
            while (
                last + 1 < len(words) and words[last + 1].end - words[first].start <= self.longest
            ):
                last += 1
            begin = self.grid.frame_at(
                self.grid.sample(words[first].start - MARGIN), frames[chosen]
            )
            end = self.grid.frame_at(self.grid.sample(words[last].end + MARGIN), frames[chosen])
            rows.append(self.features.rows(names[chosen], begin, end + 1).float())
            targets.append(
                torch.tensor(
                    self.vocabulary.encode(" ".join(w.text for w in words[first : last + 1]))
                )
            )
        return {
            "features": pad_sequence(rows, batch_first=True),
            "lengths": torch.tensor([len(f) for f in rows]),
            "targets": pad_sequence(targets, batch_first=True),
            "sizes": torch.tensor([len(t) for t in targets]),
        }


def begin_text(data: Corpus, options: QaOptions) -> tuple[SpanModel, PreTrainedTokenizerBase]:
    """Text QA before training, and its tokeniser: the text encoder of the options, and a head that
    their seed draws."""
    encoder, tokenizer = load_text_encoder(options.text_encoder)
    if options.characters:  # these get rows of the encoder's embedding table
        texts = [*(p.written for p in data.passages.values()), *(q.written for q in data.questions)]
        encoder, table, tokenizer = character_encoder(
            encoder, tokenizer, texts, options.training.seed
        )
    else:
        rows = encoder.get_input_embeddings().weight.detach()
        table = nn.Embedding.from_pretrained(rows.clone(), freeze=options.trained != "all")
    torch.manual_seed(options.training.seed)
    return SpanModel(
        encoder,
        table,
        subword_units(tokenizer, options.subwords, table.num_embeddings, table.embedding_dim),
    ), tokenizer


def train_text(
    corpus: Path,
    out: Path,
    options: QaOptions,
    start: Path | None = None,
    shift: Path | None = None,
    passages: int | None = None,
) -> None:
    """Train text QA on the words of a split; once. The tokeniser is saved beside the model.

    start: text QA to go on from, with its tokeniser, in the place of a text encoder. shift: what is
    added to a layer of the encoder; it is kept beside the model, and added whenever that reads.
    passages: only the first so many, with their questions. Questions whose answer has neither times
    nor an offset with words of the passage there are listed and left out.
    Raises InputError where `out` holds a reader that was made from other inputs, or `start` is no
    text QA.
    """
    check_share(options.batch, options.short_batch)
    begun, (added, shifted) = weights_of(start), load_shift(shift) if shift else (None, {})
    sources = {"data": data_hash(corpus, options.split)} | start_of(
        out, options.text_encoder, start
    )
    sources |= held_out_hash(corpus, options.evaluation) | (
        {"shift": shifted["hash"]} if shift else {}
    )
    sources |= {"passages": passages} if passages else {}
    with stage(out, sources, settings(options), grows="options.training.steps") as step:
        if step.done:
            return
        data = first_passages(load_corpus(corpus, options.split), passages)
        if start:
            model, _, base = load_reader(start)
            if base.get("what") != "text QA":
                raise InputError(
                    f"{start} is a {base.get('what')}, not text QA; give --start a folder of "
                    "`speechssl train text-qa`"
                )
            tokenizer = load_tokenizer(start, model.embedding.num_embeddings)
            options = replace(
                options,
                text_encoder=base["text_encoder"],
                subwords=base["subwords"],
                characters=base["characters"],
            )
            model.train().requires_grad_(True)
            model.embedding.requires_grad_(options.trained == "all" or options.characters)
            torch.manual_seed(options.training.seed)  # of dropout
        else:
            model, tokenizer = begin_text(data, options)
        if added:
            added.attach(model.encoder)
            if is_main():
                added.save(out / SHIFT)
        layout = layout_of(options, *special_tokens(tokenizer))
        examples, left_out = text_examples(data, TextCodec(tokenizer))
        report_set_aside(left_out, "training of text QA", "question")
        if is_main():
            tokenizer.save_pretrained(out)
        card: dict[str, Any] = {
            "what": "text QA",
            "text_encoder": options.text_encoder,
            "corpus": corpus_card(corpus),
        }
        card |= {
            "subwords": options.subwords,
            "characters": options.characters,
            "left_out": len(left_out),
        }
        card |= {"passages": len(data.passages)}
        card |= {"shift": shifted} if shift else {}
        card |= (
            ({"start": begun} if start else {})
            | licences(corpus, options.text_encoder, start)
            | data_facts(sources, start)
        )
        fit_spans(
            model,
            examples,
            layout,
            options,
            out,
            card,
            word_evaluation(corpus, model, layout, TextCodec(tokenizer), options),
        )


def word_evaluation(
    corpus: Path, model: SpanModel, layout: Layout, codec: TextCodec, options: QaOptions
) -> Evaluation | None:
    """F1 on held-out questions, by what the system `text` reads. Raises InputError where there are
    none with a text."""
    if (data := held_out(corpus, options.evaluation)) is None:
        return None
    usable = [
        q for q in data.answerable if q.text.strip() and data.passages[q.passage].text.strip()
    ]
    data = evaluated_part(data, usable, options.evaluation, "a text")
    words = {r.id: given_words("text", r) for r in data.records}
    items = {q.id: (words[q.id], words[q.passage]) for q in data.questions}

    def score() -> float:
        reader = TrainedReader(codec, Reader(model, layout, device=str(model.head.weight.device)))
        answers = answer_in_batches(load_text(TextQa(reader), "text").answer_all, items)
        return mean_f1(data, {name: answer.text for name, answer in answers.items()})

    return Evaluation(options.evaluation, "f1", len(items), score)
