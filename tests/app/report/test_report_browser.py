"""The report in a real browser, on a phone and on a desk."""

import pytest

from fl_app.report.report_page import write_report
from tests.browser import need_chromium, opened, started
from tests.report_data import EVIL, failed, write_grouping, write_results
from tests.samples import sampled

pytestmark = [
    pytest.mark.slow,
    need_chromium,
    # Playwright leaves the loop that it ran its driver in to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NAMES = ["berlin", "oslo", EVIL, "a hospital with an exceedingly long name in the north", "x", "ü"]
# What stands on the page beside or below each other, and the boxes of a table's cells.
OVERLAPPING = """
() => {
  const boxes = [...document.querySelectorAll("h1,h2,h3,p,pre,summary,table,figcaption,.chart")]
    .filter((one) => one.getClientRects().length && !one.closest(".vega-embed,.said"))
    .map((one) => [one, one.getBoundingClientRect()]);
  const wrong = [];
  for (const [a, p] of boxes) for (const [b, q] of boxes) {
    if (a === b || a.contains(b) || b.contains(a)) continue;
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (wide > 1 && high > 1) wrong.push(a.tagName + " over " + b.tagName + ": " + b.textContent);
  }
  return wrong;
}
"""
TEXTS_OVERLAPPING = """
() => {
  const wrong = [];
  for (const chart of document.querySelectorAll(".chart svg")) {
    const texts = [...chart.querySelectorAll("text")].filter((one) => one.textContent.trim())
      .map((one) => [one.textContent, one.getBoundingClientRect()]);
    const box = chart.getBoundingClientRect();
    texts.forEach(([a, p], i) => {
      if (p.left < box.left - 1 || p.right > box.right + 1) wrong.push("cut: " + a);
      texts.slice(i + 1).forEach(([b, q]) => {
        const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        if (wide > 1 && high > 3) wrong.push(a + " over " + b);
      });
    });
  }
  return wrong;
}
"""
WIDER = """
() => [...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
  .filter((one) => !one.closest(".wide, .said, #vg-tooltip-element, svg"))
  .map((one) => one.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def browser():
    with started() as one:
        yield one


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return reports by name: of devices with names of all kinds, of 300 clients, of two runs."""

    def change(summary):
        summary["runs"][0]["failures"] = [failed(3, "it did not register")]
        summary["runs"][0]["accuracy-per-client"][3] = None
        summary["runs"][0]["outliers"] = {"2": "its data are like nobody's"}

    root = tmp_path_factory.mktemp("reports")
    devices = write_results(
        root / "devices", names=NAMES, change=change, options={"dataset": "devices"}
    )
    write_grouping(devices, NAMES)
    many = write_results(root / "many", clients=300, seeds=1)
    alone = write_grouping(root / "alone", NAMES)
    return {
        "devices": write_report([devices], root / "devices.html"),
        "many": write_report([many], root / "many.html"),
        "alone": write_report([alone], root / "alone.html"),
        "both": write_report([devices, many], root / "both.html", "Which is better?"),
    }


@pytest.mark.parametrize(
    ("name", "width"),
    sampled([("both", 1280), ("many", 1280), ("alone", 390), ("devices", 390), ("both", 390)], 3),
)
def test_nothing_is_said_loaded_cut_or_hidden(browser, reports, name, width):
    said = []
    with opened(browser, reports[name], width, said) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        page.wait_for_timeout(1_500)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(WIDER) == []
        assert page.evaluate(OVERLAPPING) == []
        assert page.evaluate(TEXTS_OVERLAPPING) == []
        charts, drawn = (
            page.locator(what).count() for what in (".chart", ".chart :is(svg, canvas)")
        )
        assert charts == drawn > 0
        assert page.locator("img").count() == 0
    assert said == []


@pytest.mark.faults
def test_pointing_at_a_client_shows_its_name(browser, reports):
    said = []
    with opened(browser, reports["devices"], 390, said) as page:
        chart = page.locator(".chart[aria-label*='each client']")
        chart.scroll_into_view_if_needed()
        dots = chart.locator("g.mark-symbol path")
        assert dots.count() == 23  # of 24, one was not tested
        seen = set()
        for place in range(dots.count()):
            dots.nth(place).hover()
            tip = page.locator("#vg-tooltip-element.visible")
            tip.wait_for()
            seen.add(tip.locator("tr", has_text="client").locator("td.value").inner_text())
            box = tip.bounding_box()
            assert 0 <= box["x"] <= 390 - box["width"]
        assert {f"{name}, seed 1" for name in NAMES} <= seen
    assert said == []


def test_on_a_phone_a_wide_table_scrolls_under_its_first_column_and_shows_it(browser, reports):
    with opened(browser, reports["devices"], 390, []) as page:
        table = page.locator(".wide").first
        name = table.locator("tbody th").first
        before = name.bounding_box()["x"]
        moved = table.evaluate("(one) => { one.scrollLeft = 200; return one.scrollLeft; }")
        assert moved > 50
        assert name.bounding_box()["x"] == before
        assert "gradient" in table.evaluate("(one) => getComputedStyle(one).backgroundImage")


def test_a_click_in_the_legend_fades_the_others(browser, reports):
    with opened(browser, reports["devices"], 1280, []) as page:
        chart = page.locator(".chart[aria-label*='per round']")
        chart.scroll_into_view_if_needed()
        lines = chart.locator("g.mark-line path")
        before = [lines.nth(place).get_attribute("opacity") for place in range(lines.count())]
        chart.locator("g.role-legend-label text").first.click()
        page.wait_for_timeout(300)
        after = [lines.nth(place).get_attribute("opacity") for place in range(lines.count())]
    assert set(before) == {"1"}
    assert sorted(after) == ["0.15", "1"]


def test_a_turned_phone_gets_pictures_of_its_new_width(browser, reports):
    with opened(browser, reports["devices"], 390, []) as page:
        page.set_viewport_size({"width": 844, "height": 390})
        page.wait_for_selector("html[data-drawn='844']")
        widths = page.eval_on_selector_all(
            ".chart", "all => all.map((one) => [one.clientWidth, Number(one.dataset.drawn)])"
        )
    assert all(drawn == box for box, drawn in widths if box)


@pytest.mark.faults
def test_it_prints_what_is_folded_too(browser, reports, tmp_path):
    with opened(browser, reports["both"], 1280, []) as page:
        page.wait_for_selector("html[data-folded]")
        charts, drawn = (
            page.locator(what).count() for what in (".chart", ".chart :is(svg, canvas)")
        )
        folded = page.locator("details:not([open])").count()
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        unfolded = page.locator("details[open]").count()
        hidden = page.locator(".chart:not(:visible)").count()
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() == folded
        page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert charts == drawn
    assert unfolded >= folded > 3
    assert hidden == 0
    assert (tmp_path / "report.pdf").read_bytes()[:5] == b"%PDF-"
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


@pytest.mark.faults
def test_a_picture_that_fails_says_so_and_is_tried_again(browser, reports):
    said = []
    with opened(browser, reports["devices"], 1280, said) as page:
        page.wait_for_selector("html[data-folded]")
        fails = "window.structuredClone = () => { throw new Error('out of memory'); };"
        page.evaluate(f"() => {{ window.works = window.structuredClone; {fails} }}")
        page.set_viewport_size({"width": 700, "height": 900})
        first = page.locator(".chart").first
        page.wait_for_selector("html[data-folded='700']")
        assert first.inner_text() == "This picture could not be drawn: out of memory"
        page.evaluate("() => { window.structuredClone = window.works; }")
        page.evaluate("window.dispatchEvent(new Event('resize'))")
        first.locator("svg").wait_for()
        assert "could not be drawn" not in first.inner_text()
    assert said
    assert all("out of memory" in one for one in said)


def test_the_policy_stops_a_script_that_got_in(browser, reports, tmp_path):
    """What an injection would do: the browser refuses to run it, and to load anything."""
    text = reports["devices"].read_text(encoding="utf-8")
    wrong = (
        "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
        "<img src='https://example.org/x.png'>"
    )
    path = tmp_path / "wrong.html"
    path.write_text(text.replace("</main>", f"{wrong}</main>"), encoding="utf-8")
    said = []
    with opened(browser, path, 1280, said) as page:
        assert "fedkin" in page.title()
    assert sum("Content Security Policy" in one for one in said) >= 3
