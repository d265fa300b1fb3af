"""The task plane over HTTP, against the real llama.cpp."""
