"""Imports a compose file, a chart or an image as an app: the description, its parameters and its problems."""
