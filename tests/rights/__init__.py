"""What the chart's accounts may do, judged by what the API servers of the cluster suite recorded."""
