"""Container files: linted, valid, and in step with the code. Images are not built here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from backends.launcher.server import EXIT_TIMEOUT

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
BIN = Path(sys.executable).parent


def manifests() -> dict[str, dict]:
    return {part["kind"]: part for part in yaml.safe_load_all((DOCKER / "k8s" / "tts.yaml").read_text())}


def families() -> set[str]:
    """Names in backends/tts/metrics.py, which only Triton's stub can import."""
    return set(re.findall(r'^    "(tts_\w+)": \(', (ROOT / "backends" / "tts" / "metrics.py").read_text(), re.M))


def test_dockerfile_is_clean() -> None:
    done = subprocess.run([BIN / "hadolint", DOCKER / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_manifests_are_valid() -> None:
    command = [str(BIN / "kubernetes-validate"), "--strict", str(DOCKER / "k8s" / "tts.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("passed") + done.stdout.count("passed") == 4


def test_containers_run_as_a_plain_user_and_have_time_to_finish() -> None:
    assert re.search(r"^USER 10001$", (DOCKER / "Dockerfile").read_text(), re.M)
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["terminationGracePeriodSeconds"] > EXIT_TIMEOUT
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    assert int(compose["services"]["tts"]["stop_grace_period"].removesuffix("s")) > EXIT_TIMEOUT


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_are_real_inferences(probe: str) -> None:
    container = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    command = container[probe]["exec"]["command"]
    assert command[:3] == ["python", "-m", "backends.launcher.probe"]
    arguments = [sys.executable, *command[1:], "--url", "127.0.0.1:9", "--timeout", "2"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "does not speak" in done.stderr


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    panels = json.loads((DOCKER / "grafana" / "dashboard.json").read_text())["panels"]
    text = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"tts_\w+", text)}
    assert shown == families()
    assert len(families()) > 10


def test_the_autoscaler_follows_a_metric_that_exists() -> None:
    (metric,) = manifests()["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in families()
