"""Evaluates every alert and every dashboard query with a Prometheus that scrapes a server.

monitoring.py API alerts.yml grafana-dashboard.json
"""

import json
import re
import sys
import urllib.parse
import urllib.request

SERIES = re.compile(r"\b(?:forebay_\w+|up)\b(?:\{[^}]*\})?")
# Values that Grafana would insert.
VARIABLES = {"$__rate_interval": "30s", "$instance": ".*", "$volume": ".*"}


def get(path, **parameters):
    """Returns an answer of the HTTP API; an error status counts as an answer, too."""
    url = f"{api}{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        return json.load(refused)


def rows(query):
    """Returns the series that a query yields now."""
    answer = get("/api/v1/query", query=query)
    if answer["status"] != "success":
        sys.exit(f"{query}: {answer['error']}")
    return answer["data"]["result"]


def check_alerts(path):
    """Checks that every rule of the file is loaded and healthy, and that its series exist."""
    with open(path, encoding="utf-8") as file:
        written = re.findall(r"- alert: (\w+)", file.read())
    groups = get("/api/v1/rules")["data"]["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert sorted(written) == sorted(rules), (
        f"{written} are written, {list(rules)} loaded"
    )
    for name, rule in rules.items():
        assert rule["health"] == "ok", (
            f"{name}: {rule.get('lastError', rule['health'])}"
        )
        rows(rule["query"])
        series = SERIES.findall(rule["query"])
        assert series, f"{name} watches nothing: {rule['query']}"
        for one in series:
            assert rows(one), f"{name}: there is no {one}"
    return len(rules)


def check_dashboard(path):
    """Checks that every query of every panel, and every variable, yields something."""
    with open(path, encoding="utf-8") as file:
        dashboard = json.load(file)
    count = 0
    for variable in dashboard["templating"]["list"]:
        series, label = re.fullmatch(
            r"label_values\((.*), (\w+)\)", variable["definition"]
        ).groups()
        found = rows(filled(series))
        assert found and all(label in row["metric"] for row in found), variable[
            "definition"
        ]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = filled(target["expr"])
            found = rows(query)
            assert found, f"{panel['title']} is empty: {query}"
            for row in found:
                missing = set(
                    re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
                ) - set(row["metric"])
                assert not missing, (
                    f"{panel['title']}: the legend needs {missing}: {query}"
                )
                assert row["value"][1] != "NaN", (
                    f"{panel['title']} is not a number: {query}"
                )
            count += 1
    return count


def filled(query):
    """Returns a query as Grafana sends it."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    assert "$" not in query, query
    return query


api = sys.argv[1]
alerts, queries = check_alerts(sys.argv[2]), check_dashboard(sys.argv[3])
print(f"{alerts} alerts and {queries} queries evaluated")
