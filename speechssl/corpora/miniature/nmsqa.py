"""NMSQA as its authors release it: a Parquet file a split, segments as MP3 at 22,050 Hz, and two JSON files that name them.

`audio_full_*` of train and dev count from the beginning of the segment, as in the release; those of test from that of the passage.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from speechssl.artefacts import replacing, write_json
from speechssl.corpora.espeak import speak
from speechssl.corpora.miniature.telling import Asked, Content, Told, record

PARAGRAPHS = 2  # an article
ANNOTATORS = {"train": 1, "dev": 3, "test": 1}  # who give the same text, with one time among them


def write_nmsqa(told: Content, root: Path, rng: random.Random) -> None:
    for split, passages in told.items():
        audio = root / f"{split}_audios"
        rows, questions, segments = [], {}, {}
        for t in passages:
            place = f"{t.index // PARAGRAPHS}_{t.index % PARAGRAPHS}"
            segments[place] = [str(i) for i in range(len(t.sounds))]
            for i, sound in enumerate(t.sounds):
                record(audio / f"context-{place}_{i}.mp3", sound.samples, sound.sample_rate)
            for i, question in enumerate(t.questions):
                row = _row(t, question, place, i)
                rows.append(row)
                questions[row["id"]] = f"question-{place}_{i}"
                sound = speak(question.spoken, question.voice)
                record(audio / f"question-{place}_{i}.mp3", sound.samples, sound.sample_rate)
        write_parquet(root / "data.parquet" / f"{split}.parquet", rows)
        write_json(root / f"{split}-hash2question.json", questions)
        write_json(root / f"{split}_segment_id.json", segments)


def _row(told: Told, question: Asked, place: str, number: int) -> dict[str, Any]:
    sentence, (start, end) = question.source.sentence, told.times(question)
    earlier = told.before(sentence) if told.split == "test" else 0.0
    people, rate = ANNOTATORS[told.split], float(told.sounds[0].sample_rate)
    return {
        "id": f"invented{told.split}{told.index:04d}{number:02d}",
        "title": f"Invented_{told.index // PARAGRAPHS}",
        "context": told.context,
        "question": question.text,
        "answers": {
            "answer_start": [question.start] * people,
            "audio_full_answer_end": [round(earlier + end, 2)],
            "audio_full_answer_start": [round(earlier + start, 2)],
            "audio_full_neg_answer_end": [],
            "audio_full_neg_answer_start": [],
            "audio_segment_answer_end": [round(end, 2)],
            "audio_segment_answer_start": [round(start, 2)],
            "text": [question.answer] * people,
        },
        "content_segment_audio_path": f"context-{place}_{sentence}.mp3",
        "content_full_audio_path": f"context-{place}.mp3",
        "content_audio_sampling_rate": rate,
        "content_audio_speaker": told.voice.name,
        "content_segment_text": told.written[sentence],
        "content_segment_normalized_text": told.written[sentence],
        "question_audio_path": f"question-{place}_{number}.mp3",
        "question_audio_sampling_rate": rate,
        "question_audio_speaker": question.voice.name,
        "question_normalized_text": question.text,
    }


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    lists = {name: pyarrow.list_(pyarrow.float64()) for name in rows[0].get("answers", {}) if name.startswith("audio_")}
    table = pyarrow.Table.from_pylist(rows)
    if lists:  # an empty list alone does not say of what it is one
        kinds = {"answer_start": pyarrow.list_(pyarrow.int64()), "text": pyarrow.list_(pyarrow.string())} | lists
        fields = [pyarrow.field(name, kinds[name]) for name in rows[0]["answers"]]
        place = table.schema.get_field_index("answers")
        table = pyarrow.Table.from_pylist(rows, schema=table.schema.set(place, pyarrow.field("answers", pyarrow.struct(fields))))
    with replacing(path) as temporary:
        parquet.write_table(table, temporary)
