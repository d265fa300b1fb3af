"""How workloads are told where the collector of their machine is."""

import pytest

from homeport.core.node.telemetry_variables import otlp_variables
from homeport.errors import InvalidInput


def test_the_variables_have_the_names_of_margo() -> None:
    assert otlp_variables(None) == {}
    assert otlp_variables("http://10.0.0.1:4318") == {
        "HTTP_OTEL_EXPORTER_OTLP_ENDPOINT": "http://10.0.0.1:4318",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    more = otlp_variables("https://c:4318", "grpc://c:4317", "/etc/ca.pem")
    assert more["GRPC_OTEL_EXPORTER_OTLP_ENDPOINT"] == "grpc://c:4317"
    assert more["OTEL_EXPORTER_OTLP_CERTIFICATE"] == "/etc/ca.pem"


@pytest.mark.parametrize(
    "url", ["", "4318", "ftp://h", "http://", "http://h:99999", "http://h x", "http://" + "a" * 600]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="not an address"):
        otlp_variables(url)


def test_grpc_alone_is_not_enough() -> None:
    with pytest.raises(InvalidInput, match="is needed"):
        otlp_variables(None, "grpc://c:4317")
