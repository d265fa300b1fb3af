"""At central: the catalog of models."""
