"""What is taken as a recording, and what as the text of a question."""

import numpy as np
import pytest

from speechssl.data.asked import read_question, read_recording

from ..files import refused


def test_samples_that_are_integers_have_their_own_full_scale():
    samples = np.random.default_rng(0).integers(-20_000, 20_000, 16_000)
    found = [
        read_recording(x)
        for x in (samples.astype(np.int16), (samples << 16).astype(np.int32), samples / 32_768)
    ]
    assert all(x.dtype == np.float32 and np.array_equal(x, found[2]) for x in found)
    refused("the array given is silent", read_recording, np.ones(16_000, np.int16))


@pytest.mark.parametrize(
    ("message", "questions"),
    [
        ("has no words; give a text, or a recording", ["", "   ", "?!"]),
        (
            "does not exist",
            [
                "speech.wav",
                "my question.mp3",
                "question.m4a",
                "recordings/q.webm",
                "recordings/who",
                "who\\q",
            ]
            + ["https://a.b/q", "https://a.b/q.mp3?x=1"],
        ),
    ],
)
def test_a_question_without_words_and_the_name_of_a_missing_recording_are_refused(
    message: str, questions: list[str]
) -> None:
    for question in questions:
        refused(message, read_question, question)


@pytest.mark.parametrize(
    "question",
    [
        "Who?",
        "km/h?",
        "Was it Ga/As",
        "Where is St. Paul.",
        "Who made Node.js?",
        "他是谁",
        "学生/老师有多少",
        "Is it x.com",
        "3.14",
        "x" * 5000,
    ],
)
def test_texts_are_read_as_they_are(question: str) -> None:
    assert read_question(question) == question
