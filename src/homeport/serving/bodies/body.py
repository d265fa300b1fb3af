"""What every HTTP body is. Field names are the same words as everywhere else.

Requests refuse unknown fields, so that a typing error is answered and not ignored.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from homeport.vocabulary import NODE_ID_PATTERN, SITE_NAME_PATTERN

SiteNameText = Annotated[str, StringConstraints(pattern=SITE_NAME_PATTERN)]
NodeIdText = Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
