"""Load tests: our own open-loop client, perf_analyzer and locust against the served voice, pooled and as its twin."""
