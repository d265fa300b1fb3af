"""What central and sites share in serving HTTP.

The web framework is loaded here, before anything else imports it, without the validators of its own models, as
`bodies.body` does with ours: they are built when the OpenAPI document is first asked for. To build them took a third
of the framework's import, at every start of a role.
"""

from pydantic import BaseModel

BaseModel.model_config["defer_build"] = True
try:
    import fastapi  # noqa: F401 - loaded while the setting holds
finally:
    del BaseModel.model_config["defer_build"]
