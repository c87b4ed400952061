"""The chart: rendered by the real helm over several sets of values, checked by Kubernetes' schemas and the CRDs'."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from cuscuta import instruments
from cuscuta.settings import Settings, load
from deploy.helm import dashboard
from tests.support.drain import CLOSING_S, DRAIN_S
from tests.support.tools import find, needs

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "cuscuta"
KUBERNETES = "1.31"
CRDS = {
    "github.com/kedacore/keda/v2@v2.17.2": "config/crd/bases",
    "sigs.k8s.io/gateway-api@v1.3.0": "config/crd/standard",
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": "example/prometheus-operator-crd",
}
FULL = {
    "worker": {"keda": {"enabled": True, "accounts": 18}, "seats": 4},
    "entry": {
        "autoscaling": {"enabled": True},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
        "gateway": {"enabled": True, "parent": {"name": "gateway", "namespace": "edge"}},
    },
    "nats": {"url": "tls://nats-1:4222,tls://nats-2:4222", "caSecret": "nats-ca", "credsSecret": "nats-creds"},
    "monitoring": {"enabled": True, "dashboard": True},
    "settings": {"CUSCUTA_RETENTION_S": 86400},
    "otel": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.monitoring:4318"},
    "image": {"repository": "registry.example/cuscuta", "tag": "1.2.3", "pullSecrets": [{"name": "pull"}]},
    "tolerations": [{"key": "x", "operator": "Exists"}],
    "nodeSelector": {"disk": "ssd"},
    "podAnnotations": {"team": "bots"},
}
SMALL = {
    "entry": {"replicas": 1},
    "reaper": {"replicas": 1},
    "nats": {"replicas": 1},
    "migration": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
VALUES: dict[str, dict[str, Any]] = {"defaults": {}, "full": FULL, "small": SMALL}
pytestmark = [
    needs("helm", "go install helm.sh/helm/v3/cmd/helm@v3.19.4"),
    needs("go", "install Go: the CRDs come as Go modules"),
]


def helm(*words: str, code: int = 0) -> str:
    done = subprocess.run([str(find("helm")), *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def options(folder: Path, values: dict[str, Any], adapter: bool = True) -> list[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    reference = ROOT / "worker" / "upstream" / "reference" / "reference.toml"
    return ["-f", str(file), *(["--set-file", f"upstream.adapter={reference}"] if adapter else [])]


def render(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    text = helm("template", "garden", str(CHART), "-n", "bots", "--kube-version", KUBERNETES, *options(folder, values))
    return [found for found in yaml.safe_load_all(text) if found]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == f"garden-cuscuta-{name}")
    return found


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for o in objects:
        name = o["metadata"]["name"]
        if o["kind"] in ("Deployment", "Job"):
            yield name, o["spec"]["template"]["spec"]
        if o["kind"] == "Pod":
            yield name, o["spec"]


class _Loader(yaml.SafeLoader):
    """That takes a plain `=` for the text it is."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


@cache
def crd(kind: str, version: str) -> dict[str, Any]:
    """The schema of a custom resource, from its project's own Go module."""
    for module, where in CRDS.items():
        done = subprocess.run(
            [str(find("go")), "mod", "download", "-json", module], capture_output=True, text=True, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for file in (Path(json.loads(done.stdout)["Dir"]) / where).glob("*.yaml"):
            for found in yaml.load_all(file.read_text(), _Loader):
                if found and found.get("kind") == "CustomResourceDefinition" and found["spec"]["names"]["kind"] == kind:
                    (its,) = (v for v in found["spec"]["versions"] if v["name"] == version)
                    return _strict(its["schema"]["openAPIV3Schema"])
    raise AssertionError(f"no CRD for {kind}")


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Unknown fields are refused, as `kubectl apply --validate=strict` does."""
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
        for name, inner in schema["properties"].items():
            if name != "metadata":
                _strict(inner)
    if isinstance(schema.get("items"), dict):
        _strict(schema["items"])
    if schema.get("x-kubernetes-int-or-string") or "(?i)" in schema.get("pattern", ""):
        schema.pop("pattern", None)  # of texts only, and in Go's own dialect
    return schema


@pytest.mark.parametrize("name", VALUES)
def test_helm_and_kubernetes_take_it(tmp_path: Path, name: str) -> None:
    linted = helm("lint", "--strict", str(CHART), "--kube-version", KUBERNETES, *options(tmp_path, VALUES[name]))
    assert "0 chart(s) failed" in linted
    objects = render(tmp_path, VALUES[name])
    kinds = set()
    for found in objects:
        kinds.add(found["kind"])
        group = found["apiVersion"].partition("/")[0]
        if ("." in group and not group.endswith(".k8s.io")) or group.startswith("gateway"):
            jsonschema.validate(found, crd(found["kind"], found["apiVersion"].partition("/")[2]))
        else:
            kubernetes_validate.validate(found, KUBERNETES, strict=True)
    assert {"Deployment", "Service", "ServiceAccount", "Pod", "PodDisruptionBudget", "ConfigMap"} <= kinds
    if name == "full":
        assert kinds >= {"ScaledObject", "TriggerAuthentication", "HorizontalPodAutoscaler", "Ingress", "HTTPRoute",
                         "ServiceMonitor", "PodMonitor", "PrometheusRule", "NetworkPolicy", "Job"}  # fmt: skip


def test_a_schema_that_takes_everything_would_be_noticed(tmp_path: Path) -> None:
    scaled = one(render(tmp_path, FULL), "ScaledObject", "worker")
    scaled["spec"]["maxReplicas"] = 3
    with pytest.raises(jsonschema.ValidationError, match="maxReplicas"):
        jsonschema.validate(scaled, crd("ScaledObject", "v1alpha1"))
    deployment = one(render(tmp_path, {}), "Deployment", "entry")
    deployment["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


def test_every_pod_is_confined(tmp_path: Path) -> None:
    for name, pod in pods(render(tmp_path, FULL)):
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            its = container["securityContext"]
            assert its["readOnlyRootFilesystem"], name
            assert not its["allowPrivilegeEscalation"]
            assert its["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"]["cpu"]


def test_pods_get_the_time_that_their_drain_takes(tmp_path: Path) -> None:
    """A worker's drain is halt_grace_s, and then connections, pools and the last spans."""
    for grace in (15, 60):
        objects = render(tmp_path, {"worker": {"haltGraceSeconds": grace}})
        pod = one(objects, "Deployment", "worker")["spec"]["template"]["spec"]
        env = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
        assert float(env["CUSCUTA_HALT_GRACE_S"]) == grace
        assert pod["terminationGracePeriodSeconds"] > grace + CLOSING_S
        entry = one(objects, "Deployment", "entry")["spec"]["template"]["spec"]
        before = 5
        assert f"time.sleep({before})" in str(entry["containers"][0]["lifecycle"])
        assert entry["terminationGracePeriodSeconds"] > before + DRAIN_S["entry"]
        reaper = one(objects, "Deployment", "reaper")["spec"]["template"]["spec"]
        assert reaper["terminationGracePeriodSeconds"] > DRAIN_S["reaper"]


def test_every_variable_is_a_setting_and_no_secret_is_a_value(tmp_path: Path) -> None:
    for values in VALUES.values():
        for name, pod in pods(render(tmp_path, values)):
            for container in pod["containers"]:
                env = {e["name"]: e["value"] for e in container.get("env", [])}
                ours = {k: v for k, v in env.items() if k.startswith("CUSCUTA_")}
                files = {"CUSCUTA_NATS_CA", "CUSCUTA_NATS_CREDS"}  # not here
                load({k: v for k, v in ours.items() if k not in files})
                assert {k.removeprefix("CUSCUTA_").lower() for k in ours} <= set(Settings.__struct_fields__)
                assert not {"CUSCUTA_NATS_PASSWORD", "CUSCUTA_SECRET_KEYS", "CUSCUTA_SEAL_KEYS"} & set(env), name


def test_each_part_gets_its_own_secret(tmp_path: Path) -> None:
    objects = render(tmp_path, {"secrets": {"entry": "s-entry", "worker": "s-worker", "reaper": "s-reaper"}})
    for part in ("entry", "worker", "reaper"):
        (container,) = one(objects, "Deployment", part)["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": f"s-{part}"}}]


def test_workers_scale_to_nothing_and_to_what_accounts_allow(tmp_path: Path) -> None:
    objects = render(tmp_path, FULL)
    spec = one(objects, "ScaledObject", "worker")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 5)  # 18 accounts, 4 seats
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["url"] == "http://garden-cuscuta-entry.bots.svc:8000/scaling"
    assert trigger["metadata"]["targetValue"] == "4"
    assert trigger["metadata"]["authMode"] == "bearer"
    assert "replicas" not in one(objects, "Deployment", "worker")["spec"]
    assert "replicas" not in one(objects, "Deployment", "entry")["spec"]
    (parameter,) = one(objects, "TriggerAuthentication", "worker")["spec"]["secretTargetRef"]
    assert parameter["parameter"] == "token"


def test_the_next_three_commands_are_told(tmp_path: Path) -> None:
    """Helm shows NOTES.txt only to whom it has a cluster for; here it is rendered as a part of the chart."""
    chart = tmp_path / "cuscuta"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text()
    head = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: notes}\ndata:\n  notes: |\n    "
    body = head + '{{- include "x" . | nindent 4 }}'
    (chart / "templates" / "notes.yaml").write_text('{{- define "x" }}' + text + "{{- end }}\n" + body)
    words = ["template", "garden", str(chart), "-n", "bots", "--kube-version", KUBERNETES, "-s", "templates/notes.yaml"]
    notes = yaml.safe_load(helm(*words, *options(tmp_path, FULL)))["data"]["notes"]
    for command in ("cuscuta tokens bootstrap", "port-forward svc/garden-cuscuta-entry 8000:8000", "cuscuta doctor"):
        assert command in notes


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"worker": {"seat": 3}}, "seat"),
        ({"worker": {"seats": 0}}, "/worker/seats"),
        ({"nats": {"url": "nats://user:password@nats"}}, "/nats/url"),
        ({"settings": {"CUSCUTA_NATS_PASSWORD": "x"}}, "CUSCUTA_NATS_PASSWORD"),
        ({"upstream": {"name": "mine:Rhythm"}}, "not both"),
        ({"entry": {"gateway": {"enabled": True}}}, "name the Gateway"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path: Path, values: dict[str, Any], told: str) -> None:
    assert told in helm("template", "x", str(CHART), "--kube-version", KUBERNETES, *options(tmp_path, values), code=1)


def test_the_upstream_must_be_said(tmp_path: Path) -> None:
    refused = helm(
        "template", "x", str(CHART), "--kube-version", KUBERNETES, *options(tmp_path, {}, adapter=False), code=1
    )
    assert "--set-file upstream.adapter" in refused


def test_dashboard_and_alerts_speak_of_metrics_that_there_are() -> None:
    kept = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert kept == dashboard.dashboard(), "run: python deploy/helm/dashboard.py"
    shown = {target["expr"] for panel in kept["panels"] for target in panel.get("targets", [])}
    assert all(any(one.prometheus in expr for expr in shown) for one in instruments.TABLE)
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    known = {one.prometheus for one in instruments.TABLE}
    labels = {dashboard.label(name) for one in instruments.TABLE for name in one.attributes} | {"pod"}
    for rule in rules:
        words = {word for word in _words(rule["expr"]) if word.startswith("cuscuta_")}
        names = {word.removesuffix("_count").removesuffix("_bucket") for word in words} - labels
        assert names, rule
        assert names <= known, rule
    assert len(rules) >= 8


def _words(expr: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in expr).split()


def test_operations_say_what_to_do_at_each_alert() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for rule in (rule for group in alerts["groups"] for rule in group["rules"]):
        assert f"`{rule['alert']}`" in page, rule["alert"]
