"""The figures of results/load.json, and the bars they are held to."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from loadtest.sweep import ADAPTIVE, BELOW, PLAIN, Results

Figures = dict[str, float | int | None]
# name: (what it is, bound, whether it is a ceiling)
BARS: dict[str, tuple[str, float, bool]] = {
    "fcl_reduction_60": ("first chunk against the twin at 60 % of its saturation, % less", 95, False),
    "fcl_reduction_30": ("… at 30 %", 93, False),
    "fcl_reduction_10": ("… at 10 %", 90, False),
    "underruns_below_80": ("underruns below 80 % of its own saturation at that time", 0, True),
    "slope_4": ("first chunk p50, 4 at once ÷ alone, adaptive depth", 1.8, True),
    "slope_4_plain": ("… without speculation", 1.8, True),
    "slope_32": ("first chunk p50, 32 at once ÷ alone, adaptive depth", 4.5, True),
    "slope_32_plain": ("… without speculation", 4.5, True),
    "triton_overhead_ms_p50": ("Triton and the wire on top of the engine's first chunk, p50, ms", 3, True),
}
TIMES_TWIN = 2.5


def figures(results: Results) -> Figures:
    """All of them; None where what it is made of was not measured."""
    found: Figures = {f"fcl_reduction_{share}": _reduction(results, share) for share in (60, 30, 10)}
    found |= {f"max_rate_{name}": round(results.sustained[name], 2) for name in ("pooled", "twin")}
    for together in (4, 32):
        found[f"slope_{together}"] = _slope(results, together, ADAPTIVE)
        found[f"slope_{together}_plain"] = _slope(results, together, PLAIN)
    found["triton_overhead_ms_p50"] = _overhead(results)
    found["underruns_below_80"] = sum(
        row["underruns"]
        for row, _ in results.find(server="pooled")
        if "rate" in row and row["rate"] < BELOW * row["saturation"]
    )
    return found


def verdicts(found: Mapping[str, float | int | None]) -> list[tuple[str, str, str, str]]:
    """(what, value, bar, "ok" or "MISSED") of each bar."""
    lines = []
    for name, (meaning, bound, ceiling) in BARS.items():
        value = found[name]
        met = value is not None and (value <= bound if ceiling else value >= bound)
        lines.append((meaning, _text(value), f"{'≤' if ceiling else '≥'} {bound:g}", "ok" if met else "MISSED"))
    pooled, twin = found["max_rate_pooled"] or 0, found["max_rate_twin"] or 0
    meaning = "highest rate with p99 first chunk in time and no gap, requests/s: pooled, twin"
    met = pooled > 0 and pooled >= TIMES_TWIN * twin
    lines.append((meaning, f"{pooled:g}, {twin:g}", f"≥ {TIMES_TWIN:g} times", "ok" if met else "MISSED"))
    return lines


def _text(value: float | int | None) -> str:
    return "-" if value is None else f"{value:g}"


def _reduction(results: Results, share: int) -> float | None:
    means = {}
    for name in ("pooled", "twin"):
        for row, _ in results.find(server=name, experiment="rates", kind="mixed", share=share):
            means[name] = row["fcl_ms"].get("mean")
    if not means.get("pooled") or not means.get("twin"):
        return None
    return round(100 * (1 - means["pooled"] / means["twin"]), 1)


def ratios(results: Results, together: int, speculation: str) -> list[float]:
    """First chunk p50 of so many at once ÷ of one alone, turn by turn."""
    p50: dict[tuple[int, int], float | None] = {
        (row["turn"], row["together"]): row["fcl_ms"].get("p50")
        for row, _ in results.find(server="pooled", experiment="bursts", speculation=speculation)
    }
    return [
        several / alone
        for (turn, number), several in p50.items()
        if number == together and several and (alone := p50.get((turn, 1)))
    ]


def _slope(results: Results, together: int, speculation: str) -> float | None:
    """Their median."""
    found = ratios(results, together, speculation)
    return round(median(found), 2) if found else None


def _overhead(results: Results) -> float | None:
    """Of the same requests, each alone: first chunk at the client minus the engine's own."""
    differences = [
        1e3 * record.arrivals[0] - record.server_first_ms
        for _, records in results.find(server="pooled", experiment="bursts", speculation=PLAIN, together=1)
        for record in records
        if record.arrivals and record.server_first_ms is not None
    ]
    return round(median(differences), 2) if differences else None
