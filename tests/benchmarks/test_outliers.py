"""Federations without a liar are made as they are described, and counted once."""

from benchmarks import outliers


def test_a_thousand_federations_of_one_to_eight_tasks_and_ten_to_a_hundred_clients():
    every = [kind for data in outliers.HONEST_DATASETS for kind in outliers.kinds(data)]
    assert len(set(every)) == len(every)
    assert 4 * len(every) >= 1_000
    assert {kind.clients for kind in every} >= {10, 100}
    assert {kind.tasks for kind in every} == {1, 2, 3, 5, 8}
    assert {kind.few for kind in every} == {0, 0.1, 0.4}


def test_each_client_has_a_spectrum_and_few_have_little(monkeypatch):
    kind = outliers.Kind("mnist-5k", 10, 2, "label", 0.2)
    counts = []
    monkeypatch.setattr(outliers, "leading_spectrum", lambda rows, _: counts.append(len(rows)))
    assert len(outliers.honest_spectra(kind, 0)) == kind.clients
    few = list(counts)
    counts.clear()
    outliers.honest_spectra(kind._replace(few=0.0), 0)
    taken = [client for client in range(10) if few[client] != counts[client]]
    assert len(taken) == 2
    assert all(few[client] == max(5, counts[client] // 10) for client in taken)


def test_what_was_counted_is_not_counted_again(monkeypatch):
    kind = outliers.Kind("mnist-5k", 10, 2, "equal")
    monkeypatch.setattr(outliers, "HONEST_DATASETS", ("mnist-5k",))
    monkeypatch.setattr(outliers, "kinds", lambda data: [kind])
    first = list(outliers.without_liars({}, [0]))[-1]
    assert [row["federations"] for row in first["rows"]] == [1]
    assert list(outliers.without_liars(first, [0])) == []
    both = list(outliers.without_liars(first, [0, 1]))[-1]
    assert [row["federations"] for row in both["rows"]] == [2]
    assert "| all | two and more | 2 | 20 | 0 (0) |" in outliers.honest_table(both["rows"])
