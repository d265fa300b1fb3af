"""API bodies of the registry, and of the caches of sites."""

from pydantic import Field

from homeport.serving.bodies.body import Body


class RegistryBody(Body):
    enabled: bool = Field(description="Whether central serves a registry.")
    host: str | None = Field(
        description="`host:port`, as it stands in references: `oci://HOST/NAME`, `HOST/NAME:TAG`."
    )
    tls: bool = Field(description="Whether it is reached by https.")
    name_prefix: str = Field(description="Where Homeport itself puts what it packs: `NAME_PREFIX/APP/COMPONENT`.")
    why: str | None = Field(description="Why there is none, as a sentence.")
    used_bytes: int = Field(description="What its content takes on disk, unfinished uploads included.")
    quota_bytes: int = Field(description="What it may take.")


class CacheBody(Body):
    enabled: bool = Field(description="Whether the site keeps content for its nodes.")
    stored_bytes: int = Field(0, description="What its content takes on disk, unfinished downloads included.")
    size_max_bytes: int = Field(0, description="What it may take.")
    protected_bytes: int = Field(0, description="The part that deployments or their rollbacks need; never evicted.")
    blobs: int = Field(0, description="How many files it has.")
    transfers: int = Field(0, description="Downloads under way.")
