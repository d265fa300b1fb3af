"""Streams of bytes over one connection: frames, flow control per stream, and what a stream may lead to."""
