"""What of the environment reaches the engine's tools."""

from homeport.adapters.runtime.programs.environment import compose_environment, engine_environment


def test_only_what_concerns_the_engine_is_handed_on() -> None:
    ours = {
        "PATH": "/bin",
        "CONTAINERS_CONF": "/c",
        "DOCKER_HOST": "unix:///d",
        "AWS_SECRET": "x",
        "CONTAINER_NAME": "y",
    }
    assert engine_environment(ours) == {"PATH": "/bin", "CONTAINERS_CONF": "/c", "DOCKER_HOST": "unix:///d"}


def test_a_component_cannot_change_the_tool_that_starts_it() -> None:
    component = {
        "PATH": "/evil",
        "LD_PRELOAD": "x",
        "COMPOSE_FILE": "y",
        "PYTHONPATH": "z",
        "DOCKER_HOST": "w",
        "PORT": "1",
    }
    assert compose_environment({"PATH": "/bin"}, component) == {"PATH": "/bin", "PORT": "1"}


def test_a_compose_file_cannot_name_what_may_hold_a_credential() -> None:
    ours = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://user:password@proxy",
        "DOCKER_AUTH_CONFIG": "token",
        "PODMAN_PASSWORD": "secret",
        "XDG_SESSION_COOKIE": "cookie",
    }
    engine = engine_environment(ours)
    assert engine == {"PATH": "/bin", "HTTPS_PROXY": "http://user:password@proxy"}, "images may be behind a proxy"
    assert compose_environment(engine, {"PORT": "1"}) == {"PATH": "/bin", "PORT": "1"}
