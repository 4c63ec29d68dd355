"""What ``make bench-lake`` plays and aims at; no server."""

from __future__ import annotations

from tests.bench.figures import verdicts
from tests.bench.lake import PLACES, aims, plays
from tests.bench.run import names_of


def test_every_bar_is_of_a_case_that_is_played() -> None:
    played = {f"{case}_{place}" for case in names_of(plays()) for place in PLACES}
    assert {aim["case"] for aim in aims()} == {case for case in played if "_local" not in case}


def test_a_bar_is_that_of_the_place() -> None:
    entry = {"ratio": 1.3, "ours_s": 1.0}
    met = [
        verdict["met"]
        for case in (
            "insert_1tx_s3",
            "insert_1tx_s3_30ms",
            "freshness_insert_s3",
            "copy_1x2m_local",
        )
        for verdict in verdicts({"case": case, **entry}, aims())
    ]
    assert met == [False, True, False]
