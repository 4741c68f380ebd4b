"""Grafana dashboards as code: `python -m tools.dashboards` writes their JSON for Grafana and for the chart.

Grafana's own foundation SDK has the types; `parts` has what the dashboards share, and each of the others is one
dashboard.
"""
