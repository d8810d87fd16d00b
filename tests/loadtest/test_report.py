"""Figures and the report, from the rows of a real quick run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from loadtest.figures import BARS, Figures, figures, verdicts
from loadtest.records import Record, Row
from loadtest.report import steadiness, write
from loadtest.sweep import QUICK, Results, holds

RECORDED = Path(__file__).with_name("results.json.gz")
KEYS = {
    *("fcl_reduction_60", "fcl_reduction_30", "fcl_reduction_10", "max_rate_pooled", "max_rate_twin", "slope_4"),
    *("slope_32", "slope_4_plain", "slope_32_plain", "triton_overhead_ms_p50", "underruns_below_80", "rows"),
}


@pytest.fixture
def results() -> Results:
    """All rows; the requests of the bursts of one only."""
    saved = json.loads(gzip.decompress(RECORDED.read_bytes()))
    records = [[Record(**record) for record in saved["records"].get(str(row), [])] for row in range(len(saved["rows"]))]
    return Results(saved["rows"], records, saved["saturation"], saved["sustained"])


def test_figures_are_those_of_the_rows(results: Results) -> None:
    found = figures(results)
    rows = {row["server"]: row for row, _ in results.find(experiment="rates", kind="mixed", share=30)}
    expected = 100 * (1 - rows["pooled"]["fcl_ms"]["mean"] / rows["twin"]["fcl_ms"]["mean"])
    assert found["fcl_reduction_30"] == pytest.approx(expected, abs=0.05)
    for speculation, name in (("medusa", "slope_4"), ("none", "slope_4_plain")):
        alone, four = (results.find(experiment="bursts", together=n, speculation=speculation)[0] for n in (1, 4))
        assert found[name] == pytest.approx(four[0]["fcl_ms"]["p50"] / alone[0]["fcl_ms"]["p50"], abs=0.005)
    overheads = sorted(1e3 * record.arrivals[0] - (record.server_first_ms or 0) for record in alone[1])
    assert overheads[0] <= (found["triton_overhead_ms_p50"] or 0) <= overheads[-1]


def test_the_machines_own_speed_is_told(results: Results) -> None:
    for number, row in enumerate(results.rows):
        row |= {"gigaflops": 200 + number % 5, "cache_gb_s": 20.0 - number % 5}
    assert "200 / 201 / 202 / 203 / 204 GFLOP/s" in steadiness(results)
    assert "16 / 17 / 18 / 19 / 20 GB/s" in steadiness(results)


def test_a_slope_is_the_median_of_ratios_within_turns(results: Results) -> None:
    before = figures(results)["slope_32"] or 0
    bursts = results.find(experiment="bursts", speculation="medusa")
    for turn, factor in ((1, 2), (2, 3)):
        for row, _ in bursts:
            slower = 10 * (factor if row["together"] == 32 else 1)  # a slow turn, in which a crowd suffers more
            results.rows.append(row | {"turn": turn, "fcl_ms": {"p50": slower * row["fcl_ms"]["p50"]}})
            results.records.append([])
    assert figures(results)["slope_32"] == pytest.approx(2 * before, abs=0.02)


def test_underruns_count_below_80_percent_of_the_pooled_server_only(results: Results) -> None:
    before = figures(results)["underruns_below_80"] or 0
    limit = 0.8 * results.saturation["pooled"]
    for row in results.rows:
        if "rate" in row and row["server"] == "pooled":
            row["underruns"] += 1 if row["rate"] >= limit else 0
        elif "rate" in row:
            row["underruns"] += 1
    assert figures(results)["underruns_below_80"] == before
    low = next(row for row in results.rows if row["server"] == "pooled" and row.get("rate", limit) < limit)
    low["underruns"] += 2
    assert figures(results)["underruns_below_80"] == before + 2
    low["saturation"] = low["rate"]  # the machine was slower then
    assert figures(results)["underruns_below_80"] == before


def test_bars() -> None:
    good: Figures = {name: bound for name, (_, bound, _) in BARS.items()}
    good |= {"max_rate_pooled": 5.0, "max_rate_twin": 2.0}
    assert [line[-1] for line in verdicts(good)] == ["ok"] * (len(BARS) + 1)
    bad: Figures = {name: bound + (1 if ceiling else -1) for name, (_, bound, ceiling) in BARS.items()}
    bad |= {"max_rate_pooled": 5.0, "max_rate_twin": 2.1, "slope_32": None}
    assert [line[-1] for line in verdicts(bad)] == ["MISSED"] * (len(BARS) + 1)
    assert verdicts(good | {"max_rate_pooled": 0.0, "max_rate_twin": 0.0})[-1][-1] == "MISSED"


def test_a_rate_holds_only_if_everyone_was_served_well() -> None:
    fine: Row = {"fcl_ms": {"p99": 100.0}, "underruns": 0, "spoken": 5, "requests": 5}
    assert holds(fine)
    worse: Row
    for worse in ({"fcl_ms": {"p99": 100.1}}, {"underruns": 1}, {"spoken": 4}, {"fcl_ms": {}}):
        assert not holds(fine | worse)


def test_the_report_is_complete_and_stands_alone(results: Results, tmp_path: Path) -> None:
    written = write(results, QUICK, tmp_path, quick=True)
    assert json.loads((tmp_path / "load.json").read_text()) == written
    assert set(written) >= KEYS
    folder = tmp_path / "load"
    page, text = ((folder / name).read_text() for name in ("report.html", "report.md"))
    assert page.count("<svg") == 2 and "src=" not in page and "<link" not in page
    for plot in ("latency.svg", "rtf.svg"):
        assert f"({plot})" in text and (folder / plot).stat().st_size > 1000
    for row, _ in results.find(kind="mixed", experiment="rates"):
        cells = f"| {row['server']} | {row['share']} | {row['rate']:g} | {row['fcl_ms']['mean']:g} / "
        assert cells in text
    for row, _ in results.find(experiment="bursts"):  # of one turn
        assert f"| {row['speculation']} | {row['together']} | 1 | {row['fcl_ms']['p50']:.1f} [" in text
    raw = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    assert len(raw) == sum(map(len, results.records)) > 0
