"""Ports of what is kept: records, lists, log lines, measurements, blobs."""
