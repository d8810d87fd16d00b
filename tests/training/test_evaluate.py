"""The judge: normalisation, error counts, faults, sentences; pocketsphinx on the real teacher where flite is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from training.evaluate import wav_directory
from training.recogniser import normalise, transcribe, word_error_rate
from training.report import write_results
from training.score import Row, faults, load_sentences, score, speech_and_gap, wer

ROW = Row("1.1", "teacher", "one two three four", "one two three four", 0, 4, 2.0, 1.6, 0.1)


def test_the_hundred_sentences() -> None:
    sentences = load_sentences()
    assert list(sentences) == [f"{group}.{number}" for group in range(1, 11) for number in range(1, 11)]
    assert len(set(sentences.values())) == 100
    assert sentences["1.1"] == "The birch canoe slid on the smooth planks."
    assert sentences["10.10"] == "The bill was paid every third week."
    assert all(text.isascii() and text[0].isupper() and text.endswith(".") for text in sentences.values())
    assert len(load_sentences(7)) == 7


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("It's EASY, isn't it?", "its easy isnt it"),
        ("the man\u2019s well-oiled wheels.", "the mans well oiled wheels"),
        ("7 books and 42", "seven books and forty two"),
        ("...", ""),
    ],
)
def test_normalise(written: str, words: str) -> None:
    assert normalise(written) == words


def test_word_error_rate_is_plain_and_weighs_words() -> None:
    assert word_error_rate(["A, b c.", "d"], ["a b c", "d"]) == 0.0
    assert word_error_rate(["a b c", "d"], ["a x c", ""]) == pytest.approx(50.0)  # one substitution, one deletion
    assert word_error_rate(["a b"], ["a b c d e"]) == pytest.approx(150.0)
    assert word_error_rate(["half way"], ["halfway"]) == pytest.approx(100.0)
    with pytest.raises(ValueError, match="2 references against 1"):
        word_error_rate(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="at least one word"):
        word_error_rate(["..."], ["a"])


def test_speech_and_gap() -> None:
    tone = 0.3 * np.sin(np.arange(8000) * 0.3)
    wave = np.concatenate([np.zeros(3200), tone, np.zeros(16000), tone, np.zeros(3200)]).astype(np.float32)
    assert speech_and_gap(wave) == (pytest.approx(1.0, abs=0.05), pytest.approx(1.0, abs=0.05))
    assert speech_and_gap(np.zeros(1000, np.float32)) == (0.0, 0.0)
    assert speech_and_gap(np.zeros(0, np.float32)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, ""),
        ({"speech_seconds": 0.0, "hypothesis": ""}, "silent cut"),
        ({"longest_gap": 1.5}, "silent"),
        ({"speech_seconds": 1.1}, "cut"),
        ({"hypothesis": "one"}, "cut"),
        ({"speech_seconds": 2.4}, "looped"),
        ({"hypothesis": "one two three four three four three"}, "looped"),
        ({"finish_reason": "length"}, "looped"),
    ],
)
def test_faults(change: dict[str, object], found: str) -> None:
    assert faults(replace(ROW, **change), ROW) == found  # type: ignore[arg-type]


def test_results_files(tmp_path: Path) -> None:
    worse = replace(ROW, errors=1, hypothesis="one too three four", faults="cut")
    systems = {"teacher": [ROW], "codec": [replace(ROW, system="codec")], "tts": [replace(worse, system="tts")]}
    write_results(tmp_path, systems, {"codec": 4.0, "tts": 8.0}, {"seed": 1})
    figures = json.loads((tmp_path / "quality.json").read_text())
    assert (figures["wer_teacher"], figures["wer_codec"], figures["wer_tts"]) == (0.0, 0.0, 25.0)
    assert (figures["sentences"], figures["gone_wrong_tts"], figures["gone_wrong_teacher"]) == (1, 1, 0)
    assert len((tmp_path / "quality_rows.csv").read_text().splitlines()) == 4
    assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")


def test_score_refuses_an_unknown_sentence() -> None:
    with pytest.raises(KeyError, match=r"11\.1"):
        score({"11.1": np.zeros(16000, np.float32)})


def test_wav_directory_says_what_is_wrong(tmp_path: Path) -> None:
    import soundfile

    with pytest.raises(SystemExit, match=r"no \.wav files"):
        wav_directory(tmp_path)
    soundfile.write(tmp_path / "1.1.wav", np.zeros(800), 8000)
    with pytest.raises(SystemExit, match="8000 Hz"):
        wav_directory(tmp_path)


def test_the_recogniser_hears_the_teacher_whatever_came_before() -> None:
    from training.evaluate import teacher_waves
    from training.teacher import TeacherError

    try:
        waves = teacher_waves({"1.4": load_sentences()["1.4"], "1.7": load_sentences()["1.7"]})
    except TeacherError as error:
        pytest.skip(str(error))
    rows = score(waves, workers=1)
    assert wer(rows) <= 20.0
    assert [faults(row, row) for row in rows] == ["", ""]
    silence = np.zeros(16000, np.float32)
    assert transcribe([waves["1.7"], silence, waves["1.4"]], workers=2)[::2] == transcribe(
        [waves["1.7"], waves["1.4"]], workers=1
    )
