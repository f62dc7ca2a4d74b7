"""`speechssl answer`: its options."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from speechssl.config import DEVICE, option, use_device
from speechssl.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Answer:
    """answer a spoken question from a spoken passage

    Prints the start and end of the answer in the passage and, for a cascade, its words. Systems are dual and cascade-ENGINE, with
    the engine ctc, pocketsphinx, or a Hugging Face model.

      speechssl answer --passage lecture.mp3 --question question.wav --clip answer.wav
    """

    passage: Path = option(MISSING, "recording of the passage: WAV, FLAC, MP3 or OGG at any rate, of any length")
    question: Path = option(MISSING, "recording of the question")
    systems: tuple[str, ...] = option(("dual", "cascade-ctc"), "systems to run: dual, cascade-ENGINE, or both", least=1)
    models: str = option("minisqa-en-robust", "shipped set or model folder")
    clip: Path | None = option(None, "write the answer of the first system to this audio file")
    device: str = option("auto", DEVICE)

    def run(self) -> None:
        from speechssl.audio import check_clip, read_audio, write_clip
        from speechssl.systems import answer, describe

        engines = [name.partition("-")[2] for name in self.systems if name.startswith("cascade-")]
        if unknown := [name for name in self.systems if name != "dual" and not name.startswith("cascade-")]:
            raise InputError(f"`speechssl answer` has no system {unknown[0]}; give dual, cascade-ctc or both with --systems")
        if len(engines) > 1:
            raise InputError("`speechssl answer` runs one cascade at a time; give one of them with --systems")
        if self.clip:
            check_clip(self.clip)
            self.clip.parent.mkdir(parents=True, exist_ok=True)
        system, engine = "cascade" if "dual" not in self.systems else "both" if engines else "dual", (engines or ["ctc"])[0]
        use_device(self.device)
        passage = read_audio(self.passage)
        answers = answer(passage, read_audio(self.question), system, self.models, engine)
        for name, found in answers.items():
            words = f'  "{found.text}"' if found.text is not None else ""
            print(f"{name:>20}  {found.start:7.2f} to {found.end:7.2f} s  confidence {found.confidence:.2f}{words}")
        print(describe(self.models, engine))
        if self.clip:
            name, first = next(iter(answers.items()))
            write_clip(self.clip, passage, first.start, first.end)
            print(f"{self.clip}: the answer of {name}")
