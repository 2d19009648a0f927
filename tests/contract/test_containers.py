"""The image and the compose file of a team's repository, and the manifests of Kubernetes, fit the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from flows.cli import loopline
from tasks.host.workspace import HOME
from tasks.operations.team_repository import begin
from tests.loaded import load

KUBERNETES = "1.34"
INFRA = Path(__file__).parents[2] / "infra"
MANIFESTS = sorted(set((INFRA / "kubernetes").glob("*.yaml")) - {INFRA / "kubernetes" / "kustomization.yaml"})

POOL = INFRA / "kubernetes" / "pool"


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text())


def documents(path: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(path.read_text()))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team's repository with containers."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(HOME, raising=False)
        begin(folder, has_docker=True)
    return folder


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    services: dict[str, Any] = read(repository / "compose.yaml")["services"]
    return services


@pytest.fixture(scope="module")
def pods() -> dict[str, Any]:
    """The pods' specs by the names of what makes them."""
    made = [each for path in MANIFESTS for each in documents(path)]
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in made
        if "template" in each.get("spec", {})
    }


def test_the_image_follows_the_rules_of_hadolint(repository: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, repository / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_is_what_compose_takes(repository: Path, tmp_path: Path) -> None:
    checker = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checker, repository / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((repository / "compose.yaml").read_text().replace("cap_drop", "capdrop"))
    assert subprocess.run([*checker, wrong], capture_output=True, check=False).returncode == 1


def test_the_image_holds_the_loopline_of_the_repository(repository: Path, root: Path) -> None:
    text = (repository / "Containerfile").read_text()
    assert re.findall(r"^COPY (.*) \./$", text, re.MULTILINE) == ["loopline*"]
    assert "-r loopline.txt" in text
    allowed = [line[1:] for line in (repository / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert allowed == ["loopline*"]
    (version,) = re.findall(r"^ARG UV_VERSION=(\S+)$", text, re.MULTILINE)
    assert version == load(INFRA / "setup_env.py").UV_VERSION
    assert re.search(r"^FROM \S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001"]


def test_what_containers_name_in_the_image_is_in_the_wheel(compose: dict[str, Any], pods: dict[str, Any]) -> None:
    """The image shows the wheel's folder of Loopline as /app/program."""
    commands = [service["entrypoint"] for service in compose.values() if "nginx" in service.get("entrypoint", ())]
    commands += [
        container["command"] for pod in pods.values() for container in pod["containers"] if "command" in container
    ]
    files = {word.removeprefix("/app/program/") for command in commands for word in command if word.startswith("/app/")}
    assert files == {"infra/nginx/loopline.conf"}


@pytest.mark.parametrize("path", [*MANIFESTS, *POOL.glob("rights.yaml")], ids=lambda path: path.name)
def test_a_manifest_is_what_kubernetes_takes(path: Path) -> None:
    for each in documents(path):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_a_manifest_with_an_unknown_key_is_refused() -> None:
    claim = documents(INFRA / "kubernetes" / "workspace.yaml")[0]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**claim, "sepc": {}}, KUBERNETES, strict=True)


def test_kustomize_names_every_manifest() -> None:
    kustomization = read(INFRA / "kubernetes" / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS]
    assert all((INFRA / "kubernetes" / name).exists() for name in kustomization["configMapGenerator"][0]["envs"])


def test_the_pool_gives_the_worker_its_account(pods: dict[str, Any]) -> None:
    component = read(POOL / "kustomization.yaml")
    assert [path.name for path in POOL.glob("*.yaml") if path.name not in component["resources"]] == [
        "kustomization.yaml"
    ]
    (patch,) = component["patches"]
    assert patch["target"]["name"] in pods
    for change in YAML(typ="safe").load(patch["patch"]):
        key = change["path"].removeprefix("/spec/template/spec/")
        assert change["op"] == "replace"
        assert key in pods["worker"]


def test_every_command_is_one_of_the_program(compose: dict[str, Any], pods: dict[str, Any]) -> None:
    commands = [service["command"] for service in compose.values() if "command" in service]
    commands += [container["args"] for pod in pods.values() for container in pod["containers"] if "args" in container]
    assert len(commands) == 4
    for name, *arguments in commands:
        command = loopline.get_command(click.Context(loopline), name)
        assert command is not None
        command.make_context(name, [re.sub(r"\$\{\w+:-(.*)\}", r"\1", each) for each in arguments])


def test_every_variable_is_one_of_the_program(compose: dict[str, Any]) -> None:
    names = {name for service in compose.values() for name in service.get("environment", {})}
    for file in ("config.env", "secrets.env.example"):
        names |= set(re.findall(r"^([A-Z_]+)=", (INFRA / "kubernetes" / file).read_text(), re.MULTILINE))
    own = {name for name in names if name.startswith("LOOPLINE_")}
    assert len(own) > 5
    assert own <= set(load(INFRA / "documentation" / "write_reference.py").VARIABLES)


def test_every_variable_of_the_compose_file_has_a_value(repository: Path) -> None:
    text, values = (repository / "compose.yaml").read_text(), (repository / ".env").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(re.findall(r"^(\w+)=.", values, re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+):-", text)) == set(re.findall(r"^(\w+)=$", values, re.MULTILINE))


def test_ports_of_the_compose_file_are_open_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose.values() for port in service.get("ports", ())]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_ports_of_servers_are_those_of_nginx(compose: dict[str, Any], pods: dict[str, Any]) -> None:
    """It asks the ports of the servers, on loopback; nothing else is reached from elsewhere."""
    text = (INFRA / "nginx" / "loopline.conf").read_text()
    listens, asks = (
        set(re.findall(f"^ *{word}(\\d+)", text, re.MULTILINE)) for word in ("listen ", "server 127.0.0.1:")
    )
    assert (listens, asks) == ({"8000", "8001", "4380"}, {"8010", "8011", "4300"})
    for pod in pods.values():
        open_ports = {container["name"]: container.get("ports", []) for container in pod["containers"]}
        assert {str(port["containerPort"]) for port in open_ports.pop("nginx")} <= listens
        assert [*open_ports.values()] == [[]]
    for name in ("serve", "worker"):
        assert compose[name]["network_mode"] == f"service:{name}-nginx"
        (port,) = compose[f"{name}-nginx"]["ports"]
        assert port.rpartition(":")[2] in listens
    commands = [compose["serve"]["command"], *(one["args"] for one in pods["serve"]["containers"] if "args" in one)]
    for command in commands:
        assert "--host" not in command
        assert {value for value in command if re.fullmatch(r"8\d{3}", value)} <= asks


def test_no_container_may_do_more_than_it_must(pods: dict[str, Any]) -> None:
    for pod in pods.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"]
            assert not allowed["allowPrivilegeEscalation"]
            assert allowed["capabilities"] == {"drop": ["ALL"]}
