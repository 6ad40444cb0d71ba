"""Dashboards, alerts and pages name metrics that the server exports, and pages tell all that it does."""

import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = re.compile(r"\bheadway_[a-z_]+\b(?!=)")
#: What Prometheus makes of one histogram.
PARTS = ("_bucket", "_sum", "_count")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def exported() -> tuple[set[str], set[str]]:
    """All metrics by name, and those of them that are histograms."""
    text = (ROOT / "scheduler/src/metrics.rs").read_text()
    constants = dict(re.findall(r'const ([A-Z_]+): &str = "(headway_[a-z_]+)";', text))
    kinds = re.findall(r"describe_(counter|gauge|histogram)!\(\s*([A-Z_]+),", text)
    described = {name: kind for kind, name in kinds}
    assert set(described) == set(constants), set(described) ^ set(constants)
    return set(constants.values()), {constants[name] for name, kind in described.items() if kind == "histogram"}


def unknown(text: str) -> set[str]:
    """Names in a query that no series has."""
    metrics, histograms = exported()
    series = (metrics - histograms) | {name + part for name in histograms for part in PARTS}
    return set(NAME.findall(text)) - series


class Dashboards(unittest.TestCase):
    def dashboards(self):
        files = sorted((ROOT / "deploy/grafana").glob("*.json"))
        self.assertEqual([file.stem for file in files], ["cluster", "scheduler"])
        return [(file.stem, json.loads(file.read_text())) for file in files]

    def test_each_panel_says_what_it_shows_in_which_unit_from_the_chosen_source(self):
        for name, dashboard in self.dashboards():
            self.assertGreaterEqual(dashboard["schemaVersion"], 39)
            variables = {one["name"]: one["type"] for one in dashboard["templating"]["list"]}
            self.assertEqual(variables, {"datasource": "datasource", "instance": "query"})
            panels = dashboard["panels"]
            self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
            for panel in panels:
                where = f"{name}: {panel['title']}"
                self.assertIn(panel["type"], {"stat", "timeseries"}, where)
                self.assertGreater(len(panel["description"]), 20, where)
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], where)
                self.assertEqual(panel["datasource"], SOURCE, where)
                self.assertTrue(panel["targets"], where)
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], SOURCE, where)
                    self.assertEqual(unknown(target["expr"]), set(), where)
                    self.assertEqual(target["expr"].count("("), target["expr"].count(")"), where)

    def test_panels_lie_beside_each_other(self):
        for name, dashboard in self.dashboards():
            cells = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, f"{name}: {panel['title']}")
                mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
                self.assertFalse(cells & mine, f"{name}: {panel['title']}")
                cells |= mine

    def test_every_metric_is_drawn(self):
        drawn = "".join(json.dumps(dashboard) for _, dashboard in self.dashboards())
        self.assertEqual({metric for metric in exported()[0] if metric not in drawn}, set())


class Alerts(unittest.TestCase):
    def test_each_names_what_is_exported_and_says_what_to_do(self):
        text = (ROOT / "deploy/prometheus/alerts.yaml").read_text()
        self.assertEqual(unknown(text), set())
        rules = text.split("- alert: ")[1:]
        self.assertGreater(len(rules), 10)
        for rule in rules:
            for part in ["expr:", "severity:", "summary:", "description:"]:
                self.assertIn(part, rule)
        names = [rule.split()[0] for rule in rules]
        self.assertEqual(len(set(names)), len(names))


class Pages(unittest.TestCase):
    def test_operations_tell_every_metric_and_no_page_another(self):
        metrics, _ = exported()
        told = set(NAME.findall((ROOT / "docs/operations.md").read_text()))
        self.assertEqual(metrics - told, set(), "not in docs/operations.md")
        for page in sorted((ROOT / "docs").rglob("*.md")):
            self.assertEqual(unknown(page.read_text()) - metrics, set(), page.name)


if __name__ == "__main__":
    unittest.main()
