"""The rule for kinds of answers: question words in English and Chinese, then the form of the answer."""

import pytest

from speechssl.eval.scores import TYPES, answer_type

ENGLISH = [
    ("When was the bridge built?", "late that year", "date"),
    ("In which year did lydia bailey move", "nineteen forty four", "date"),
    ("What opened it?", "4 May 1998", "date"),
    ("What came before?", "the winter of nineteen sixty", "date"),
    ("How many people live there?", "a handful", "number"),
    ("How long is it?", "3.5 km", "number"),
    ("What does jacob armstrong owe", "sixty one thousand euros", "number"),
    ("Who taught colin foster at school", "joanna cameron", "person"),
    ("Whose boat was it?", "the captain's", "person"),
    ("Where does molly andrews work", "victory gallery", "place"),
    ("What city is it in?", "Paris", "place"),
    ("Why did he leave?", "rain", "reason"),
    ("How does helen travel", "purple truck", "manner"),
    ("What happened?", "the bridge that they had built fell into the river", "clause"),
    ("What was it called?", "Tower of London", "proper noun"),
    ("what was it called", "tower of london", "other"),
    ("What did carl buy", "woollen pillow", "other"),
    ("", "", "other"),
]
CHINESE = [
    ("這座橋是什麼時候建的？", "去年", "date"),
    ("他出生於哪一年？", "1949", "date"),
    ("開幕日期", "1998年5月4日", "date"),
    ("有多少人住在那裡？", "很多", "number"),
    ("共有幾個？", "三個", "number"),
    ("面積", "3.5平方公里", "number"),
    ("創辦人是誰？", "王小明", "person"),
    ("總部在哪裡？", "臺北", "place"),
    ("他住在哪個城市？", "臺北", "place"),
    ("他為什麼離開？", "下雨", "reason"),
    ("他如何離開？", "坐船", "manner"),
    ("發生了甚麼事？", "他們建造的那座橋在大雨之後倒塌了", "clause"),
    ("這是甚麼動物？", "白熊", "other"),
]


@pytest.mark.parametrize(("question", "answer", "kind"), ENGLISH)
def test_english(question, answer, kind):
    assert answer_type(question, answer, "en-gb") == kind


@pytest.mark.parametrize(("question", "answer", "kind"), CHINESE)
def test_chinese(question, answer, kind):
    assert answer_type(question, answer, "zh-TW") == kind


def test_every_type_is_tried():
    assert {kind for *_, kind in ENGLISH} == set(TYPES)
