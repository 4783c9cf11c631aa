# SPDX-License-Identifier: Apache-2.0
import json
import sys

import answers
import make_answers
import pytest
from answers import HERE, differences, read
from make_answers import conversations


def files():
    return [HERE / f"answers_{name}.jsonl" for name in "ab"]


def test_the_files_are_what_the_script_writes(tmp_path):
    make_answers.write(tmp_path)
    for file in files():
        assert (tmp_path / file.name).read_text(encoding="utf-8") == file.read_text(encoding="utf-8")


def test_exactly_the_two_topics_are_found_with_their_questions():
    questions, said = read(files()[0])
    topics = differences(questions, (said, read(files()[1])[1]))
    of = {row["question"]: row["topic"] for row in conversations("a")}
    found = [{of[questions[i]] for i in topic.questions} for topic in topics]
    assert sorted(map(sorted, found)) == [["distances"], ["health"]]
    for topic in topics:
        name = of[questions[topic.questions[0]]]
        assert len(topic.questions) == sum(row == name for row in of.values())
    words = {word for topic in topics for word in topic.words}
    assert {"patient", "road"} <= words


def test_other_words_for_the_same_are_no_difference():
    rows, others = conversations("a"), conversations("c")
    questions = [row["question"] for row in rows]
    sides = [[row["answer"] for row in side] for side in (rows, others)]
    assert sides[0] != sides[1]
    assert differences(questions, sides) == []


def test_any_encoder_and_any_files(monkeypatch, capsys, tmp_path):
    (tmp_path / "letters.py").write_text(
        "from sklearn.feature_extraction.text import HashingVectorizer\n"
        "def encode(texts):\n"
        "    return HashingVectorizer(n_features=512, alternate_sign=False).fit_transform(texts).toarray()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = tmp_path / "mine.jsonl"
    mine.write_text(files()[0].read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["answers.py", str(mine), str(files()[1]), "--encoder", "letters:encode"])
    answers.main()
    said = capsys.readouterr().out
    assert "differ on 2 topics" in said
    assert "    mine: " in said
    assert "doctor" in said


def test_script_prints_topics_questions_and_both_answers(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["answers.py"])
    answers.main()
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "76 questions; the answerers differ on 2 topics"
    assert said.count("    answers_a: ") == said.count("    answers_b: ") == 15
    assert "kilometres" in said
    assert "capital" not in said


def test_what_is_refused(monkeypatch, capsys, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps({"question": "Who?"}))
    with pytest.raises(ValueError, match=r"in line 1 of .*bad\.jsonl"):
        read(file)
    monkeypatch.setattr(sys, "argv", ["answers.py", str(files()[0])])
    with pytest.raises(SystemExit):
        answers.main()
    assert "expected two files" in capsys.readouterr().err
    file.write_text(json.dumps({"question": "Who?", "answer": "I"}))
    monkeypatch.setattr(sys, "argv", ["answers.py", str(files()[0]), str(file)])
    with pytest.raises(SystemExit):
        answers.main()
    assert "the same questions in the same order" in capsys.readouterr().err
